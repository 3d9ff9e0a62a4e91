"""How far a run's training negatives tell which items were held out.

All draws are functions of the seed, the round and the user, so those of a finished run are drawn again and
counted. Two things are then asked: how often the held-out items and their candidates were drawn, and whether
the model's scores follow these counts, as those of a model that merely remembers its draws do.
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
from fedrec.federation.pairs import PairTable
from fedrec.random.purpose import Purpose
from fedrec.runs.record import RunRecord

HIT = 10
"""A hit is a rank of at most this."""


def exposure(run: RunRecord) -> dict[str, Any]:
    """Draws of held-out items and of candidates, for validation and test, and whether scores follow them.

    `counting` tells what the draws alone give away: see `hits_by_counting`.
    """
    (drawn,) = draw_counts(run.clients, [Drawers.of(run)])
    return described(run, drawn)


def hits_by_counting(clients: Clients, drawn: PairTable) -> dict[str, float]:
    """The hit ratio on test items of who ranks what a client drew least first, and that of chance.

    Items drawn equally often are in any order: the mean over all orders.
    """
    everyone = clients.everyone.unsqueeze(1)
    target = drawn.get(everyone, clients.held_out["test"].unsqueeze(1))
    others = drawn.get(everyone, clients.candidates["test"])
    before, equal = (others < target).sum(1), (others == target).sum(1) + 1
    found = ((HIT - before).double() / equal).clamp(0, 1)
    return {f"hr@{HIT}": float(found.mean()), "chance": min(1.0, HIT / (others.shape[1] + 1))}


def described(run: RunRecord, drawn: PairTable) -> dict[str, Any]:
    """The same, where the draws of each client were counted already."""
    draws = drawn.sums()
    if not draws.any():
        return {"draws": "this method draws no training negatives"}
    clients = run.clients
    everyone = clients.everyone.unsqueeze(1)
    exposed: dict[str, Any] = {"draws_per_client": float(draws.double().mean())}
    for part in HELD_OUT_PARTS:
        target = drawn.get(everyone, clients.held_out[part].unsqueeze(1))
        others = drawn.get(everyone, clients.candidates[part])
        exposed[part] = {"held_out": _spread(target), "candidates": _spread(others)}
    follows = score_correlation(run, drawn)
    return exposed | {
        "counting": hits_by_counting(clients, drawn),
        "score_follows_draws": {
            "mean": float(np.nanmean(follows)) if np.isfinite(follows).any() else None,
            "clients": int(np.isfinite(follows).sum()),
        },
    }


@dataclass(frozen=True)
class Drawers:
    """Who drew in each round of a run, and for what: all that its draws depend on besides the split."""

    seed: int
    negatives: int
    rounds: list[list[tuple[Tensor, Purpose]]]

    @classmethod
    def of(cls, run: RunRecord) -> Self:
        """The drawers of a finished run."""
        settings = run.summary["settings"]
        rounds = [run.learner.drew(round_) for round_ in range(1, settings["rounds"] + 1)]
        return cls(run.summary["seed"], settings.get("negatives", 0), rounds)

    @cached_property
    def key(self) -> Hashable:
        """What is equal for runs that drew the same."""
        rounds = tuple(
            tuple((who.cpu().numpy().tobytes(), purpose) for who, purpose in drew) for drew in self.rounds
        )
        return self.seed, self.negatives, rounds


def draw_counts(clients: Clients, runs: Sequence[Drawers]) -> list[PairTable]:
    """How often each client drew each item as a training negative, for each of some runs on one split.

    A client's draws do not depend on who else draws, so what runs share is drawn once for all of them, and
    runs that share all of it have one table.
    """
    different = {run.key: run for run in runs}
    drawn = {key: PairTable(len(clients), clients.items, clients.device) for key in different}
    for round_ in range(1, 1 + max(len(run.rounds) for run in runs)):
        asked: dict[tuple[int, int, Purpose], list[tuple[Tensor, PairTable]]] = {}
        for run, counts in zip(different.values(), drawn.values(), strict=True):
            for who, purpose in run.rounds[round_ - 1] if round_ <= len(run.rounds) else ():
                asked.setdefault((run.seed, run.negatives, purpose), []).append((who, counts))
        for (seed, negatives, purpose), drawers in asked.items():
            _count(clients, drawers, negatives, seed, round_, purpose)
    return [drawn[run.key] for run in runs]


def _count(
    clients: Clients,
    drawers: Sequence[tuple[Tensor, PairTable]],
    negatives: int,
    seed: int,
    round_: int,
    purpose: Purpose,
) -> None:
    """Add one round's draws of each run's clients to its counts."""
    everyone = torch.cat([who for who, _ in drawers]).unique()
    samples = clients.samples(everyone, negatives, seed, round_, purpose)
    owner = torch.repeat_interleave(everyone, samples.size)
    for who, counts in drawers:
        takes_part = torch.zeros(len(clients), dtype=torch.bool, device=clients.device)
        takes_part[who] = True
        negative = (samples.label == 0) & takes_part[owner]
        counts.count(owner[negative], samples.item[negative])


def score_correlation(run: RunRecord, drawn: PairTable) -> NDArray[np.float64]:
    """Spearman's correlation of draw count and score over each client's test candidates.

    NaN where one of them is the same for all candidates.
    """
    clients = run.clients
    everyone = clients.everyone
    candidates = clients.candidates["test"]
    scores = protocol_scores(run.learner, clients, everyone, candidates)
    counts = drawn.get(everyone.unsqueeze(1), candidates)
    a, b = (_centred(mean_ranks(values.double())) for values in (counts, scores))
    spread = a.square().sum(1) * b.square().sum(1)
    # 0 / 0 is NaN: nothing can follow what does not vary.
    return ((a * b).sum(1) / spread.sqrt()).cpu().numpy()


def mean_ranks(values: Tensor) -> Tensor:
    """The rank of each value in its row, from the lowest; equal values share their mean rank."""
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
    """Which hits of a run are none in the same run whose clients may draw held-out items like any other.

    Both are read by the run's own rule for the round, so that the pool alone differs; a `ComparisonError`
    tells of runs that differ in more.
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
            f"({', '.join(different)}), so that hits may vanish for other reasons. Give the same run under "
            "the only-pool protocol of its paper."
        )


def _but_for_the_pool(summary: Mapping[str, Any]) -> dict[str, Any]:
    """What decides a run, except for what its clients may draw."""
    rules = {
        name: value for name, value in summary["protocol"].items() if name not in ("name", "negative_pool")
    }
    return {name: summary[name] for name in ("dataset", "method", "seed", "settings")} | {"protocol": rules}


def _spread(counts: Tensor) -> dict[str, float]:
    values = counts.double()
    return {"mean": float(values.mean()), "never": int((values == 0).sum()) / values.numel()}


def _centred(values: Tensor) -> Tensor:
    return values - values.mean(1, keepdim=True)
