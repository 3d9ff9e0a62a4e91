/* The whole number below a quotient, which itself may be rounded to the one above. */
INLINE real floored(real x, real y) {
  if (y == 0) return x / y;
  const real left = FMOD(x, y), whole = (x - left) / y;
  const real below = left != 0 && (y < 0) != (left < 0) ? whole - 1 : whole, lowest = FLOOR(below);
  return below - lowest > (real)0.5 ? lowest + 1 : lowest;
}
