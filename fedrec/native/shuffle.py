"""The random words of `fedrec.random` inside kernels, and a shuffle by them.

The module gives two texts of C: `PHILOX` and `SHUFFLE`.

Words are uniform, so the shuffle is a bucket sort with about one bucket per word: its time is linear in the
number of words, on any device.
"""

PHILOX = """
/* The four words of a counter. A place may leave 32 bits, as it does where words are held in 64. */
INLINE void philox(word32* words, word64 place, word32 user, word32 round, word32 purpose, word64 seed) {
  word32 key0 = (word32)seed, key1 = (word32)(seed >> 32);
  word64 product0 = place * 0xD2511F53ull, product1 = (word64)round * 0xCD9E8D57ull;
  word32 x0 = (word32)(product1 >> 32) ^ user ^ key0, x1 = (word32)product1;
  word32 x2 = (word32)(product0 >> 32) ^ purpose ^ key1, x3 = (word32)product0;
  UNROLL for (int turn = 1; turn < 10; turn++) {
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
    product0 = (word64)x0 * 0xD2511F53ull;
    product1 = (word64)x2 * 0xCD9E8D57ull;
    x0 = (word32)(product1 >> 32) ^ x1 ^ key0;
    x1 = (word32)product1;
    x2 = (word32)(product0 >> 32) ^ x3 ^ key1;
    x3 = (word32)product0;
  }
  words[0] = x0;
  words[1] = x1;
  words[2] = x2;
  words[3] = x3;
}
"""
"""`philox(words, place, user, round, purpose, seed)` writes the four 32-bit words of a counter to `words`."""

SHUFFLE = """
/* The order of one client's samples in an epoch: by their words, equal ones by their number. All lanes of a
   block come here together; `space` has two words for each sample. */
INLINE void shuffle(int* order, word64* space, int size, word32 owner, word32 round, word32 purpose,
                    word64 seed, word32 epoch) {
  if (size < 2) {
    if (LANE < size) order[LANE] = 0;
    SYNC();
    return;
  }
  int quads = (size + 3) / 4, bits = 1;
  while (2 << bits <= size) bits++;
  int stretches = 1 << bits, shift = 32 - bits;
  word32* words = (word32*)space;
  word64* keys = space + 2 * quads;
  word32 first = epoch << 20;
  for (int quad = LANE; quad < quads; quad += LANES)
    philox(words + 4 * quad, first + (word32)quad, owner, round, purpose, seed);
  /* Until it is written, the order serves to count what falls into each stretch, and then to tell where the
     next of it goes. */
  for (int stretch = LANE; stretch < stretches; stretch += LANES) order[stretch] = 0;
  SYNC();
  for (int sample = LANE; sample < size; sample += LANES) TAKE(order + (words[sample] >> shift), 1);
  SYNC();
  int each = (stretches + LANES - 1) / LANES, count = 0;
  int from = LANE * each < stretches ? LANE * each : stretches;
  int to = from + each < stretches ? from + each : stretches;
  for (int stretch = from; stretch < to; stretch++) count += order[stretch];
  int start = BEFORE(count);
  for (int stretch = from; stretch < to; stretch++) start += SWAP(order + stretch, start);
  SYNC();
  for (int sample = LANE; sample < size; sample += LANES)
    keys[TAKE(order + (words[sample] >> shift), 1)] = (word64)words[sample] << 32 | (word32)sample;
  SYNC();
#if NATIVE_GPU
  /* Lanes have filled a stretch in any order: a word goes before those of its stretch that are larger, and
     behind those that are smaller. */
  for (int place = LANE; place < size; place += LANES) {
    word64 key = keys[place], stretch = key >> 32 >> shift;
    int right = place;
    for (int other = place - 1; other >= 0 && keys[other] >> 32 >> shift == stretch; other--)
      right -= keys[other] > key;
    for (int other = place + 1; other < size && keys[other] >> 32 >> shift == stretch; other++)
      right += keys[other] < key;
    order[right] = (int)(word32)key;
  }
#else
  for (int place = 1; place < size; place++) {
    word64 key = keys[place];
    int right = place;
    for (; right > 0 && keys[right - 1] > key; right--) keys[right] = keys[right - 1];
    keys[right] = key;
  }
  for (int place = 0; place < size; place++) order[place] = (int)(word32)keys[place];
#endif
  SYNC();
}
"""
"""`shuffle(order, space, size, owner, round, purpose, seed, epoch)` writes a permutation of 0 to `size - 1`
to `order`; it needs `PHILOX`."""
