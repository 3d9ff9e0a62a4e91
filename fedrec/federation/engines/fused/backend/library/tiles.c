/* Four neighbours, computed with at once, wherever they begin. */
typedef real four __attribute__((vector_size(4 * sizeof(real))));
typedef real loose_four __attribute__((vector_size(4 * sizeof(real)), aligned(sizeof(real)), may_alias));
#define FOUR(place) (*(loose_four*)(place))
#define TILES static __attribute__((noinline)) void
