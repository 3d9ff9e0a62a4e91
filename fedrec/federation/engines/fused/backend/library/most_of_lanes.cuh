/* The largest of what lanes have, of each of COUNT numbers. */
template <int COUNT> INLINE void most_of_lanes(const real* own, real* total) {
  __shared__ real parts[LANES];
  for (int k = 0; k < COUNT; k++) {
    parts[LANE] = own[k];
    SYNC();
    for (int apart = LANES / 2; apart; apart /= 2) {
      if (LANE < apart) parts[LANE] = most(parts[LANE], parts[LANE + apart]);
      SYNC();
    }
    if (LANE == 0) total[k] = parts[0];
    SYNC();
  }
}
