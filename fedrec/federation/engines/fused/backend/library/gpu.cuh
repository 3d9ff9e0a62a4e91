#define EXP exp
#define LOG log
#define LOG1P log1p
#define ABS fabs
#define SQRT sqrt
#define TANH tanh
#define POW pow
/* The sums of COUNT numbers, a power of two, over the lanes of a warp: lanes halve them between them. */
template <int COUNT, int APART = 16> INLINE void sum_warp(const real* own, real* total) {
  if constexpr (COUNT == 1) {
    real x = own[0];
    UNROLL for (int apart = APART; apart; apart /= 2) x += __shfl_xor_sync(0xffffffffu, x, apart);
    if ((LANE & (2 * APART - 1)) == 0) *total = x;
  } else {
    constexpr int half = COUNT / 2;
    const bool upper = LANE & APART;
    real x[half];
    UNROLL for (int k = 0; k < half; k++) {
      const real sent = upper ? own[k] : own[k + half], kept = upper ? own[k + half] : own[k];
      x[k] = kept + __shfl_xor_sync(0xffffffffu, sent, APART);
    }
    sum_warp<half, APART / 2>(x, upper ? total + half : total);
  }
}
template <int COUNT> INLINE void sum_warps(const real* own, real* total) {
  constexpr int some = COUNT >= 16 ? 16 : COUNT >= 8 ? 8 : COUNT >= 4 ? 4 : COUNT >= 2 ? 2 : 1;
  sum_warp<some>(own, total);
  if constexpr (COUNT > some) sum_warps<COUNT - some>(own + some, total + some);
}
template <int COUNT> INLINE void sum_lanes(const real* own, real* total) {
  constexpr int warps = LANES > 32 ? LANES / 32 : 1;
  __shared__ real parts[COUNT * warps];
  sum_warps<COUNT>(own, parts + (LANE >> 5) * COUNT);
  SYNC();
  for (int k = LANE; k < COUNT; k += LANES) {
    real x = parts[k];
    UNROLL for (int warp = 1; warp < warps; warp++) x += parts[warp * COUNT + k];
    total[k] = x;
  }
  SYNC();
}
#define SUM_LANES(own, total, count) sum_lanes<count>(own, total)
#define TOTAL UNROLL
/* Neighbours are fetched and stored together, by fours or two of them, the first at a multiple of so many. */
template <int COUNT> INLINE void load(real* to, const real* from) {
#if !DOUBLE
  if (COUNT % 4 == 0) {
    UNROLL for (int k = 0; k < COUNT; k += 4) {
      const float4 four = *(const float4*)(from + k);
      to[k] = four.x, to[k + 1] = four.y, to[k + 2] = four.z, to[k + 3] = four.w;
    }
    return;
  }
  if (COUNT == 2) {
    const float2 two = *(const float2*)from;
    to[0] = two.x, to[1] = two.y;
    return;
  }
#endif
  UNROLL for (int k = 0; k < COUNT; k++) to[k] = from[k];
}
template <int COUNT> INLINE void store(real* to, const real* from) {
#if !DOUBLE
  if (COUNT % 4 == 0) {
    UNROLL for (int k = 0; k < COUNT; k += 4)
      *(float4*)(to + k) = make_float4(from[k], from[k + 1], from[k + 2], from[k + 3]);
    return;
  }
  if (COUNT == 2) {
    *(float2*)to = make_float2(from[0], from[1]);
    return;
  }
#endif
  UNROLL for (int k = 0; k < COUNT; k++) to[k] = from[k];
}
/* Four neighbours, from the memory of all into that of a block: on their way until FETCHED_BUT() so many of
   what was begun since, one part each FETCH_MORE(). */
INLINE void copy_four(real* to, const real* from) {
  real four[4];
  load<4>(four, from);
  store<4>(to, four);
}
#if DOUBLE || !defined(__CUDACC__)
#define fetch_four copy_four
#define FETCH_MORE()
#define FETCHED_BUT(later)
#else
INLINE void fetch_four(real* to, const real* from) {
  asm volatile(
    "{ .reg .u64 near; .reg .u32 place; cvta.to.shared.u64 near, %0; cvt.u32.u64 place, near;"
    " cp.async.cg.shared.global [place], [%1], 16; }" :: "l"(to), "l"(from));
}
#define FETCH_MORE() asm volatile("cp.async.commit_group;" ::: "memory")
#define FETCHED_BUT(later) asm volatile("cp.async.wait_group %0;" :: "n"(later) : "memory")
#endif
/* A record of doubles of a table. */
#define RECORD(count, name, table, number) \
  double name[count]; \
  UNROLL for (int k = 0; k < count; k += 2) { \
    const double2 two = *(const double2*)((table) + (number) * count + k); \
    name[k] = two.x, name[k + 1] = two.y; \
  }
/* Tiles of a product: four times four numbers. */
INLINE void clear(real (*total)[4]) {
  UNROLL for (int a = 0; a < 4; a++) UNROLL for (int b = 0; b < 4; b++) total[a][b] = 0;
}
INLINE void add_product(real (*total)[4], const real (*left)[4], const real (*right)[4]) {
  UNROLL for (int s = 0; s < 4; s++) UNROLL for (int a = 0; a < 4; a++)
    UNROLL for (int b = 0; b < 4; b++) total[a][b] += left[a][s] * right[s][b];
}
INLINE void add_outer(real* total, const real* left, const real* right) {
  UNROLL for (int k = 0; k < 16; k++) total[k] += left[k / 4] * right[k % 4];
}
/* How many neighbouring lanes share a tile of so many, each with some of the samples. */
INLINE constexpr int lanes_of_tile(int tiles) {
  int over = 1;
  while (over < 32 && 2 * over * tiles <= LANES) over *= 2;
  return over;
}
/* The sums of COUNT numbers over OVER neighbouring lanes, both powers of two: a lane keeps some of them. */
template <int COUNT, int OVER> INLINE void keep_sums(real* own) {
  if constexpr (OVER > 1) {
    constexpr int half = COUNT > 1 ? COUNT / 2 : 1, apart = OVER / 2;
    const bool upper = COUNT > 1 && LANE & apart;
    UNROLL for (int k = 0; k < half; k++) {
      const real sent = upper || COUNT == 1 ? own[k] : own[k + half], kept = upper ? own[k + half] : own[k];
      own[k] = kept + __shfl_xor_sync(0xffffffffu, sent, apart);
    }
    keep_sums<half, apart>(own);
  }
}
template <int COUNT, int OVER> INLINE int first_kept() {
  constexpr int half = COUNT / 2, apart = OVER / 2;
  if constexpr (half && apart) return (LANE & apart ? half : 0) + first_kept<half, apart>();
  return 0;
}
/* Sums of what groups of COUNT lanes have. */
template <int COUNT> INLINE void sum_groups(real x, real* total) {
  __shared__ real parts[LANES];
  parts[LANE] = x;
  SYNC();
  for (int k = LANE; k < COUNT; k += LANES) {
    real sum = 0;
    for (int group = 0; group < LANES / COUNT; group++) sum += parts[group * COUNT + k];
    total[k] = sum;
  }
  SYNC();
}
/* Of some neighbours of a row, the sums over its samples, chained from `head` on, by ascending number. */
template <int COUNT, class Term> INLINE void chained(real* total, int head, const int* following, Term term) {
  UNROLL for (int c = 0; c < COUNT; c++) total[c] = term(head, c);
  const int next = following[head];
  if (next < 0) return;
  if (following[next] < 0) {
    UNROLL for (int c = 0; c < COUNT; c++) total[c] += term(next, c);
    return;
  }
  UNROLL for (int c = 0; c < COUNT; c++) total[c] = 0;
  for (int before = -1;;) {
    int least = 0x7fffffff;
    for (int sample = head; sample >= 0; sample = following[sample])
      if (sample > before && sample < least) least = sample;
    if (least == 0x7fffffff) return;
    UNROLL for (int c = 0; c < COUNT; c++) total[c] += term(least, c);
    before = least;
  }
}
/* A sample of a mini-batch to come: the memory has time to find it. */
#if USERS
#define LOOK_FURTHER ahead_user = user_slots[at];
#else
#define LOOK_FURTHER
#endif
#define LOOK_AHEAD(at_epoch, from) if ((from) + LANE < samples) { \
  const integer at = s0 + order[(at_epoch) * sample_count + s0 + (from) + LANE]; \
  ahead_slot = slots[at]; \
  ahead_label = all_labels[at]; \
  LOOK_FURTHER \
}
#define log_of_1_and LOG1P
INLINE real sigmoid(real x) { return 1 / (1 + EXP(-x)); }
