"""Exposure: how far a run's training negatives reveal which items were held out.

Every draw is a function of seed, round and user, so the draws of a finished run are repeated and counted. The
audit answers two questions. How often were held-out items and their candidates sampled? Do the model's scores
follow these counts, as those of a model do that only remembers its draws?
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.errors import ComparisonError
from fedrec.evaluation.scoring import HELD_OUT_PARTS, protocol_scores
from fedrec.federation.clients import Clients
from fedrec.federation.pairs import keys
from fedrec.random.purpose import Purpose
from fedrec.runs.record import RunRecord

HIT = 10
"""A hit is a rank of at most this."""


_COUNTED_AT_ONCE = 1 << 24
"""Pairs of client and item, over all runs, that are counted at once; four bytes each."""


def exposure(run: RunRecord) -> dict[str, Any]:
    """Draws of held-out items and of candidates, for validation and test, and whether scores follow them.

    `counting` is the result of the draws alone: see `draw_counter_hits`.
    """
    (drawn,) = draw_counts(run.clients, [Drawers.of(run)])
    return exposure_summary(drawn, candidate_scores(run))


def candidate_scores(run: RunRecord) -> Tensor:
    """The scores by which a run's protocol ranks each client's test candidates, after the last round."""
    clients = run.clients
    return protocol_scores(run.learner, clients, clients.everyone, clients.candidates["test"])


@dataclass(frozen=True)
class DrawCounts:
    """How often each client sampled its held-out items and candidates in a run, and its number of draws.

    By part, `held_out` has shape `(clients,)` and `candidates` `(clients, candidates)`.
    """

    total: Tensor
    held_out: Mapping[str, Tensor]
    candidates: Mapping[str, Tensor]

    @classmethod
    def of(cls, clients: Clients, who: Tensor, drawn: Tensor) -> Self:
        """Select the counts of ranked items from all draws of the clients `who`: `(who, items)`."""
        held_out = {part: clients.held_out[part][who].unsqueeze(1) for part in HELD_OUT_PARTS}
        candidates = {part: clients.candidates[part][who] for part in HELD_OUT_PARTS}
        return cls(
            drawn.sum(1),
            {part: drawn.gather(1, item).squeeze(1) for part, item in held_out.items()},
            {part: drawn.gather(1, items) for part, items in candidates.items()},
        )

    @classmethod
    def joined(cls, pieces: Sequence[Self]) -> Self:
        """Join the counts of neighbouring clients."""
        return cls(
            torch.cat([piece.total for piece in pieces]),
            {part: torch.cat([piece.held_out[part] for piece in pieces]) for part in HELD_OUT_PARTS},
            {part: torch.cat([piece.candidates[part] for piece in pieces]) for part in HELD_OUT_PARTS},
        )


def draw_counter_hits(drawn: DrawCounts) -> dict[str, float]:
    """The test hit ratio of ranking items by fewest draws, and that of chance.

    Ties count with the mean over all their orders.
    """
    target, others = drawn.held_out["test"].unsqueeze(1), drawn.candidates["test"]
    before, equal = (others < target).sum(1), (others == target).sum(1) + 1
    hit_share = ((HIT - before).double() / equal).clamp(0, 1)
    return {f"hr@{HIT}": float(hit_share.mean()), "chance": min(1.0, HIT / (others.shape[1] + 1))}


def exposure_summary(drawn: DrawCounts, scores: Tensor) -> dict[str, Any]:
    """Summarise the exposure of a run from its draw counts and `candidate_scores`."""
    if not drawn.total.any():
        return {"draws": "this method samples no training negatives"}
    exposed: dict[str, Any] = {"draws_per_client": float(drawn.total.double().mean())}
    for part in HELD_OUT_PARTS:
        exposed[part] = {
            "held_out": _spread(drawn.held_out[part]),
            "candidates": _spread(drawn.candidates[part]),
        }
    follows = score_correlation(drawn, scores)
    return exposed | {
        "counting": draw_counter_hits(drawn),
        "score_follows_draws": {
            "mean": float(np.nanmean(follows)) if np.isfinite(follows).any() else None,
            "clients": int(np.isfinite(follows).sum()),
        },
    }


@dataclass(frozen=True)
class Drawers:
    """The clients that sampled in each round of a run; with the split, they determine all draws."""

    seed: int
    negatives: int
    rounds: list[list[tuple[Tensor, Purpose]]]

    @classmethod
    def of(cls, run: RunRecord) -> Self:
        """The drawers of a finished run."""
        settings = run.summary["settings"]
        rounds = [run.learner.negative_draws(round_) for round_ in range(1, settings["rounds"] + 1)]
        return cls(run.summary["seed"], settings.get("negatives", 0), rounds)

    @cached_property
    def key(self) -> Hashable:
        """A key that is equal for runs with the same draws."""
        rounds = tuple(
            tuple((who.cpu().numpy().tobytes(), purpose) for who, purpose in drew) for drew in self.rounds
        )
        return self.seed, self.negatives, rounds


def draw_counts(clients: Clients, runs: Sequence[Drawers]) -> list[DrawCounts]:
    """The draw counts of each run, all on one split; runs with the same draws share them."""
    different = {run.key: run for run in runs}
    at_once = max(1, _COUNTED_AT_ONCE // (clients.items * len(different)))
    pieces = [
        [DrawCounts.of(clients, who, drawn) for drawn in drawn_items(clients, who, list(different.values()))]
        for who in clients.everyone.split(at_once)
    ]
    counts = dict(zip(different, map(DrawCounts.joined, zip(*pieces, strict=True)), strict=True))
    return [counts[run.key] for run in runs]


def drawn_items(clients: Clients, neighbours: Tensor, runs: Sequence[Drawers]) -> list[Tensor]:
    """The draws of each item by neighbouring clients, one table `(clients, items)` for each run.

    A client's draws do not depend on other clients, so draws that runs share are computed once.
    """
    first, last = int(neighbours[0]), int(neighbours[-1])
    shape = len(neighbours), clients.items
    drawn = [torch.zeros(shape, dtype=torch.int32, device=clients.device) for _ in runs]
    for round_ in range(1, 1 + max(len(run.rounds) for run in runs)):
        requests: dict[tuple[int, int, Purpose], list[tuple[Tensor, Tensor]]] = {}
        for run, counts in zip(runs, drawn, strict=True):
            for who, purpose in run.rounds[round_ - 1] if round_ <= len(run.rounds) else ():
                here = who[(who >= first) & (who <= last)]
                requests.setdefault((run.seed, run.negatives, purpose), []).append((here, counts))
        for (seed, negatives, purpose), drawers in requests.items():
            _count(clients, first, drawers, negatives, seed, round_, purpose)
    return drawn


def _count(
    clients: Clients,
    first: int,
    drawers: Sequence[tuple[Tensor, Tensor]],
    negatives: int,
    seed: int,
    round_: int,
    purpose: Purpose,
) -> None:
    """Add the draws of one round to the counts of each run, whose first row belongs to the client `first`."""
    everyone = torch.cat([who for who, _ in drawers]).unique()
    samples = clients.samples(everyone, negatives, seed, round_, purpose)
    owner = torch.repeat_interleave(everyone - first, samples.positives)
    pair = keys(owner.unsqueeze(1), samples.item.view(-1, samples.group)[:, 1:], clients.items)
    for who, counts in drawers:
        own = pair
        if len(who) < len(everyone):
            takes_part = torch.zeros(len(counts), dtype=torch.bool, device=clients.device)
            takes_part[who - first] = True
            own = pair[takes_part[owner]]
        flat = own.reshape(-1)
        counts.view(-1).scatter_add_(0, flat, torch.ones_like(flat, dtype=counts.dtype))


def score_correlation(drawn: DrawCounts, scores: Tensor) -> NDArray[np.float64]:
    """Spearman's correlation of draw count and score over each client's test candidates.

    NaN if either is constant over the candidates.
    """
    a, b = (_centred(mean_ranks(values.double())) for values in (drawn.candidates["test"], scores))
    spread = a.square().sum(1) * b.square().sum(1)
    # 0 / 0 is NaN: a constant has no correlation.
    return ((a * b).sum(1) / spread.sqrt()).cpu().numpy()


def mean_ranks(values: Tensor) -> Tensor:
    """The rank of each value in its row, 1 for the lowest; equal values share their mean rank."""
    order = values.argsort(dim=1)
    ordered = values.gather(1, order)
    new = torch.ones_like(ordered, dtype=torch.bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    group = new.long().cumsum(1) - 1
    size = torch.zeros_like(group).scatter_add_(1, group, torch.ones_like(group))
    last = size.cumsum(1)
    mean = last.double() - (size.double() - 1) / 2
    return torch.empty_like(mean).scatter_(1, order, mean.gather(1, group))


def vanished(run: RunRecord, exposed: RunRecord) -> dict[str, Any]:
    """The hits of a run that vanish in the same run whose clients may sample held-out items.

    Both are read at the round of the run's own rule, so that only the pool differs. Raise `ComparisonError`
    if the runs differ in more.
    """
    _check_pool_alone(run, exposed)
    rule = run.summary["protocol"]["round_rule"]
    own, other = run.user_ranks(rule), exposed.user_ranks(rule)
    _, here, there = np.intersect1d(own.user, other.user, assume_unique=True, return_indices=True)
    hit, still = own.rank[here] <= HIT, other.rank[there] <= HIT
    hits = int(hit.sum())
    return {
        "hits": hits,
        "vanished": int((hit & ~still).sum()),
        "share": float((hit & ~still).sum() / hits) if hits else None,
        "new": int((~hit & still).sum()),
        "clients": len(here),
    }


def _check_pool_alone(run: RunRecord, exposed: RunRecord) -> None:
    mine, other = _but_for_the_pool(run.summary), _but_for_the_pool(exposed.summary)
    different = [name for name, value in mine.items() if other[name] != value]
    if different:
        raise ComparisonError(
            f"{exposed.folder}: differs from {run.folder} in more than the pool of negatives "
            f"({', '.join(different)}), so hits may vanish for other reasons. Give the same run under "
            "the only-pool protocol of its paper."
        )


def _but_for_the_pool(summary: Mapping[str, Any]) -> dict[str, Any]:
    """The inputs of a run, except the pool of negatives."""
    rules = {
        name: value for name, value in summary["protocol"].items() if name not in ("name", "negative_pool")
    }
    return {name: summary[name] for name in ("dataset", "method", "seed", "settings")} | {"protocol": rules}


def _spread(counts: Tensor) -> dict[str, float]:
    values = counts.double()
    return {"mean": float(values.mean()), "never": int((values == 0).sum()) / values.numel()}


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(1, keepdim=True)
