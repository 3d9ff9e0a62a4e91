/* What a division leaves, with the sign of the divisor. */
INLINE real remainder_of(real x, real y) {
  const real left = FMOD(x, y);
  return left != 0 && (y < 0) != (left < 0) ? left + y : left;
}
