"""Kernels that rank held-out items in one pass over each client's scores."""

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

/* The rank behind `better` ones and `equal` ones; behind all `others` where a score is broken. */
INLINE float rank_behind(int better, int equal, int broken, integer others, int half) {
  float ahead = half ? better + 0.5f * equal : (float)(better + equal);
  return 1 + (broken ? (float)others : ahead);
}

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
  if (LANE == LANES - 1)
    *rank = rank_behind(better, equal, broken || is_nan(score[target]), items + others, half);
}
"""
_TYPES = {
    torch.float32: ("int", "0x7fffffff", "0x7f800000"),
    torch.float64: ("long long", "0x7fffffffffffffffLL", "0x7ff0000000000000LL"),
}


def _functions(dtype: torch.dtype) -> str:
    kind, most, infinite = _TYPES[dtype]
    return f"typedef {kind} bits;\n#define MOST {most}\n#define INFINITE {infinite}\n" + _COUNTS


def _ranks(dtype: torch.dtype) -> KernelSource:
    kind = _TYPES[dtype][0]
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
        _functions(dtype),
    )  # fmt: skip


def _first_ranks(dtype: torch.dtype) -> KernelSource:
    return KernelSource(
        "first_ranks",
        (
            (f"const {_TYPES[dtype][0]}*", "score"), ("integer", "scores"), ("integer", "half"),
            ("float*", "rank"),
        ),
        """
  const bits* own = score + item * scores;
  bits target = ordered(own[0]);
  int better = 0, equal = 0, broken = is_nan(own[0]);
  for (integer other = 1 + LANE; other < scores; other += LANES) {
    bits one = ordered(own[other]);
    better += one > target;
    equal += one == target;
    broken += is_nan(own[other]);
  }
  better += BEFORE(better);
  equal += BEFORE(equal);
  broken += BEFORE(broken);
  if (LANE == LANES - 1) rank[item] = rank_behind(better, equal, broken, scores - 1, (int)half);
""",
        _functions(dtype),
    )  # fmt: skip


FIRST_RANKS = {dtype: _first_ranks(dtype) for dtype in _TYPES}
"""The kernel of a client's rank of its first score, by type of scores. A work item is one client."""


def first_ranks_by(kernel: AnyKernel, scores: Tensor, ties: TieRule) -> Tensor:
    """Rank each client's first score among its `scores` `(clients, k)`; the result has shape `(clients,)`."""
    rank = torch.empty(len(scores), dtype=torch.float32, device=scores.device)
    kernel(
        len(scores), score=scores.contiguous(), scores=scores.shape[1], half=ties == "target_mean", rank=rank
    )
    return rank


RANKS = {dtype: _ranks(dtype) for dtype in _TYPES}
"""The kernel of catalogue ranks, by type of scores. A work item is one client."""


def ranks_by(
    kernel: AnyKernel,
    scores: Tensor,
    first: int,
    start: Tensor,
    train_item: Tensor,
    held_out: tuple[Tensor, Tensor],
    ties: TieRule,
) -> Tensor:
    """Rank the validation and the test item of neighbouring clients from `first` on: `(clients, 2)`.

    `scores` `(clients, items)` belong to these clients; the other arguments cover all clients. Training items
    are excluded, and for test also the validation item.
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
