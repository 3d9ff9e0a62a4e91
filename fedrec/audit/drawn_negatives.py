"""The audit of a log of draws: does a training loop leak held-out items through its negatives?

A loop leaks if it never samples a user's held-out items as negatives, but samples the candidates that they
are ranked against. At most the share `FALSE_ALARMS` of sound loops is called leaking.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrec.audit.draw_log import DrawLog, read_draw_log
from fedrec.audit.draw_rates import DrawRates, KindOfItem, Pairs, all_pairs
from fedrec.data.split import PARTS, TEST, TRAIN, VALIDATION, Split, read_split
from fedrec.runs.score_files import IdKind

FALSE_ALARMS = 0.001
"""The largest probability that a sound loop is called leaking."""
_FALSE_ALARMS_OF_PART = FALSE_ALARMS / 2
"""The share of this probability for validation, and for test."""
_FAR_TOO_SELDOM, _SELDOM = 0.5, 0.9
"""Ratios of draws to expected draws, below which items are drawn far too seldom, or too seldom."""
_LEAST_SHOWN = 1e-12
_VARIES = 1.5
"""The relative variance above which the text mentions it."""
_HELD_OUT = (VALIDATION, TEST)

DrawVerdict = Literal[
    "another split", "leaks", "leaks in part", "avoids candidates too", "too few draws to tell", "sound"
]
DRAW_VERDICTS: dict[DrawVerdict, str] = {
    "another split": "the loop samples training items instead of held-out ones, so it holds out other items "
    "than this split. Give --protocol the one that it follows, or train it on this split.",
    "leaks": "held-out items are never sampled, or far too seldom, but the candidates that they are ranked "
    "against are sampled. A model that remembers its draws knows the held-out items.",
    "leaks in part": "held-out items are sampled, but less often than comparable ones. Some users, rounds or "
    "parts of the loop may leak.",
    "avoids candidates too": "neither held-out items nor their candidates are sampled, but other items are. "
    "Draws do not distinguish the two, but the loop uses its test data.",
    "too few draws to tell": "a sound loop could have missed all held-out items by chance. Log more rounds "
    "or users.",
    "sound": "held-out items are sampled as often as comparable ones, as far as so many draws can tell.",
}
"""The meaning of each verdict. The loop has the verdict of the part that comes first here."""


@dataclass(frozen=True)
class AuditedPart:
    """The audit of the items held out for validation, or for test."""

    held_out: KindOfItem
    candidates: KindOfItem
    verdict: DrawVerdict


@dataclass(frozen=True)
class DrawAudit:
    """The audit of a training loop by its log of draws."""

    dataset: str
    protocol: str
    split: str
    users: int
    """Users of the split that have draws."""
    rounds: int
    draws: int
    left_out: int
    """Draws of users that are not in the split."""
    by_others: bool
    """Whether expected draws come from users without a row of the item, and not from a uniform sampler."""
    bundle: float
    """The variance of counts relative to independent draws, by which draws are divided."""
    training: KindOfItem
    comparable_pairs: int
    comparable_draws: int
    parts: dict[str, AuditedPart]
    verdict: DrawVerdict

    def as_dict(self) -> dict[str, Any]:
        """The audit as a dictionary, for JSON."""
        return asdict(self)


def audit_draw_log(
    path: Path, data: Path, protocol: str = "clean", *, ids: IdKind = "original", is_uniform: bool = False
) -> DrawAudit:
    """Audit the log `path` of draws on the dataset in the folder `data`, as `protocol` splits it.

    With `is_uniform` the sampler is assumed uniform; otherwise it may prefer some items.
    """
    return audit_draws(read_draw_log(path, data, ids), read_split(data / protocol), is_uniform=is_uniform)


def audit_draws(log: DrawLog, split: Split, *, is_uniform: bool = False) -> DrawAudit:
    """Audit draws on a split: see `audit_draw_log`."""
    takes_part = np.isin(log.user, split.user)
    every, log = int(log.count.sum()), _where(log, takes_part)
    draws = int(log.count.sum())
    pairs = {part: Pairs.of(*split.pairs_of(part), split.items) for part in range(len(PARTS))}
    excluded = all_pairs(pairs.values())
    users = np.unique(split.user)
    rates = DrawRates.fitted(log, excluded, users, is_uniform=is_uniform)
    training = rates.kind(pairs[TRAIN])
    held_out = {part: rates.kind(pairs[part].without(pairs[TRAIN])) for part in _HELD_OUT}
    is_other = _is_another_split(training, held_out.values())
    parts = {}
    for part in _HELD_OUT:
        candidates = rates.kind(_candidates(split, PARTS[part]))
        verdict = _verdict(held_out[part], candidates, is_other=is_other)
        parts[PARTS[part]] = AuditedPart(held_out[part], candidates, verdict)
    verdicts = {part.verdict for part in parts.values()}
    return DrawAudit(
        dataset=split.dataset,
        protocol=split.protocol.name,
        split=split.content_hash(),
        users=len(np.unique(log.user)),
        rounds=log.rounds,
        draws=draws,
        left_out=every - draws,
        by_others=not is_uniform,
        bundle=rates.bundle,
        training=training,
        comparable_pairs=len(users) * split.items - len(excluded.user),
        comparable_draws=int(rates.of_user.sum()),
        parts=parts,
        verdict=next(verdict for verdict in DRAW_VERDICTS if verdict in verdicts),
    )


def _where(log: DrawLog, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> DrawLog:
    return replace(log, user=log.user[chosen], item=log.item[chosen], count=log.count[chosen])


def _candidates(split: Split, part: str) -> Pairs:
    """The pairs of users and their candidates of a part."""
    listed = getattr(split.candidates, part)
    return Pairs.of(np.repeat(split.candidates.user, listed.shape[1]), listed.ravel(), split.items)


def _is_seldom(kind: KindOfItem, ratio: float) -> bool:
    """Whether draws are significantly fewer than expected, and their ratio is below `ratio`."""
    return kind.p < _FALSE_ALARMS_OF_PART and kind.ratio < ratio


def _is_another_split(training: KindOfItem, held_out: Iterable[KindOfItem]) -> bool:
    """Whether draws of training items replace about as many missing draws of held-out items."""
    seldom = [kind for kind in held_out if _is_seldom(kind, _SELDOM)]
    lacking = sum(kind.expected - kind.draws for kind in seldom)
    return bool(seldom) and training.draws > lacking / 2 and _is_seldom(training, _FAR_TOO_SELDOM)


def _verdict(held_out: KindOfItem, candidates: KindOfItem, *, is_other: bool) -> DrawVerdict:
    if held_out.strength >= _FALSE_ALARMS_OF_PART:
        return "too few draws to tell"
    if not _is_seldom(held_out, _SELDOM):
        return "sound"
    if is_other:
        return "another split"
    if _is_seldom(candidates, _FAR_TOO_SELDOM):
        return "avoids candidates too"
    return "leaks" if held_out.ratio < _FAR_TOO_SELDOM else "leaks in part"


def draw_audit_text(audit: DrawAudit) -> str:
    """A table of draws by kind of item, the verdict, and its evidence."""
    return "\n".join([*_heading(audit), "", *_table(audit), "", *_conclusion(audit)])


def _heading(audit: DrawAudit) -> Iterator[str]:
    yield (
        f"{audit.draws:,} negatives that {audit.users:,} users of {audit.dataset} drew in {audit.rounds:,} "
        f"{'round' if audit.rounds == 1 else 'rounds'}, against the split {audit.protocol}."
    )
    if audit.left_out:
        yield f"Left out: {audit.left_out:,} draws of users that are not in the split."


def _table(audit: DrawAudit) -> Iterator[str]:
    yield _row("kind of item", "pairs", "draws", "expected", "if uniform", "ratio")
    rows = {"in training": audit.training}
    for name, part in audit.parts.items():
        rows |= {f"held out, {name}": part.held_out, f"candidates, {name}": part.candidates}
    for label, kind in rows.items():
        yield _row(
            label,
            f"{kind.pairs:,}",
            f"{kind.draws:,}",
            f"{kind.expected:,.1f}",
            f"{kind.uniform:,.1f}",
            f"{kind.ratio:.2f}",
        )
    # The fit makes expected draws equal to draws here.
    draws, expected = f"{audit.comparable_draws:,}", f"{audit.comparable_draws:,.1f}"
    yield _row("neither", f"{audit.comparable_pairs:,}", draws, expected, expected, "1.00")


def _row(label: str, *cells: str) -> str:
    return f"{label:<24}" + "".join(f"{cell:>14}" for cell in cells)


def _conclusion(audit: DrawAudit) -> Iterator[str]:
    yield f"Verdict: {audit.verdict}: {DRAW_VERDICTS[audit.verdict]}"
    for name, part in audit.parts.items():
        kind = part.held_out
        high = "any" if kind.high is None else f"{kind.high:.2f}"
        yield (
            f"{name.capitalize()}: {part.verdict}. Held-out items are sampled {kind.draws:,} times, "
            f"{kind.expected:,.1f} expected: ratio {kind.ratio:.2f} (95 % interval {kind.low:.2f} to "
            f"{high}), p {_chance(kind.p)}."
        )
        yield (
            f"  Strength: a sound loop samples none of them with probability {_chance(kind.strength)}; a "
            f"verdict needs less than {_FALSE_ALARMS_OF_PART:g}."
        )
    yield (
        "Expected: as often as users without a row of the same item sample it."
        if audit.by_others
        else "Expected: as often as a uniform sampler draws it."
    )
    if audit.bundle > _VARIES:
        yield (
            f"Counts vary {audit.bundle:.1f} times as much as those of independent draws, since the loop "
            "repeats draws or prefers items. So p and strength divide the number of draws by this factor."
        )
    if audit.training.draws:
        yield (
            f"Warning: the loop samples training items {audit.training.draws:,} times, "
            f"{audit.training.ratio:.2f} times as often as comparable ones. If it should never do that, "
            "check ids and split."
        )


def _chance(value: float) -> str:
    return f"{value:.2g}" if value >= _LEAST_SHOWN else f"below {_LEAST_SHOWN:g}"
