"""Ranks in the whole catalogue as a kernel: one pass over each client's scores for each held-out item."""

import torch
from torch import Tensor

from fedrec.evaluation.ranking import TieRule
from fedrec.native.kernel import AnyKernel
from fedrec.native.source import KernelSource

_COUNTS = """
/* A score as a whole number: larger ones have larger numbers, and 0 and -0 the same. Numbers are compared as
   they are, whatever a compiler does to the smallest fractions. */
INLINE bits ordered(bits score) { return (score & MOST) == 0 ? 0 : score ^ (score < 0 ? MOST : 0); }
INLINE int is_nan(bits score) { return (score & MOST) > INFINITE; }

/* The rank of one item among those that are not hidden; `hidden` has a bit for each item. */
INLINE void rank_of(float* rank, const bits* score, integer items, integer target, word32* hidden, int half) {
  integer words = (items + 31) / 32;
  if (LANE == 0) MARK(hidden + (target >> 5), 1u << (target & 31));
  SYNC();
  bits own = ordered(score[target]);
  int better = 0, equal = 0, broken = 0, others = 0;
  for (integer other = LANE; other < items; other += LANES) {
    bits one = ordered(score[other]);
    better += one > own;
    equal += one == own;
    broken += is_nan(score[other]);
  }
  for (integer word = LANE; word < words; word += LANES)
    for (word32 left = hidden[word]; left; left &= left - 1) {
      bits score_of_hidden = score[32 * word + ONES((left & -left) - 1)], one = ordered(score_of_hidden);
      better -= one > own;
      equal -= one == own;
      broken -= is_nan(score_of_hidden);
      others--;
    }
  better += BEFORE(better);
  equal += BEFORE(equal);
  broken += BEFORE(broken);
  others += BEFORE(others);
  if (LANE == LANES - 1) {
    float ahead = half ? better + 0.5f * equal : (float)(better + equal);
    *rank = 1 + (broken || is_nan(score[target]) ? (float)(items + others) : ahead);
  }
}
"""
_TYPES = {
    torch.float32: ("int", "0x7fffffff", "0x7f800000"),
    torch.float64: ("long long", "0x7fffffffffffffffLL", "0x7ff0000000000000LL"),
}


def _ranks(dtype: torch.dtype) -> KernelSource:
    kind, most, infinite = _TYPES[dtype]
    return KernelSource(
        "catalogue_ranks",
        (
            (f"const {kind}*", "score"), ("integer", "items"), ("integer", "first"),
            ("const integer*", "start"), ("const integer*", "train_item"),
            ("const integer*", "validation"), ("const integer*", "test"), ("integer", "half"),
            ("int*", "space"), ("float*", "rank"),
        ),
        """
  integer client = first + item, words = (items + 31) / 32;
  word32* hidden = (word32*)space + worker * words;
  for (integer word = LANE; word < words; word += LANES) hidden[word] = 0;
  SYNC();
  for (integer at = start[client] + LANE; at < start[client + 1]; at += LANES)
    MARK(hidden + (train_item[at] >> 5), 1u << (train_item[at] & 31));
  SYNC();
  const bits* own = score + item * items;
  rank_of(rank + 2 * item, own, items, validation[client], hidden, (int)half);
  SYNC();
  rank_of(rank + 2 * item + 1, own, items, test[client], hidden, (int)half);
""",
        f"typedef {kind} bits;\n#define MOST {most}\n#define INFINITE {infinite}\n" + _COUNTS,
    )  # fmt: skip


RANKS = {dtype: _ranks(dtype) for dtype in _TYPES}
"""The kernel for scores of each type. A piece of work is one client."""


def ranks_by(
    kernel: AnyKernel,
    scores: Tensor,
    first: int,
    start: Tensor,
    train_item: Tensor,
    held_out: tuple[Tensor, Tensor],
    ties: TieRule,
) -> Tensor:
    """The ranks of both held-out items (n x 2), validation and test, of neighbouring clients from `first`.

    `scores` (n x items) are theirs; all else is of all clients. Its training items are left out for each, and
    for test its validation item.
    """
    clients, items = scores.shape
    rank = torch.empty((clients, 2), dtype=torch.float32, device=scores.device)
    words = kernel.workers(clients) * -(-items // 32)
    kernel(
        clients,
        score=scores.contiguous(), items=items, first=first, start=start, train_item=train_item,
        validation=held_out[0], test=held_out[1], half=ties == "target_mean",
        space=torch.empty(words, dtype=torch.int32, device=scores.device),
        rank=rank,
    )  # fmt: skip
    return rank
