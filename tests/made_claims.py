"""Claims whose truth is known, because the runs behind them are made so."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from fedrec.audit.effects import Evidence
from fedrec.audit.verdicts import Judgement, judge
from fedrec.config.claims import Claim, load_claims, named_lines
from fedrec.config.conditions import CONDITIONS, MAIN, PUBLISHED, Condition
from fedrec.config.papers import load_papers
from fedrec.config.printed import printed
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_by_line
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_runs import runs_below, write_run

CLAIMS = {
    one.id: one for one in load_claims(ROOT / "config/claims.yaml", load_papers(ROOT / "config/papers"))
}
HIT, MISS = 1, 20


def narrow(name: str) -> Claim:
    """A claim on one dataset in one metric."""
    claim = CLAIMS[name]
    artefacts = tuple(replace(one, metrics=("hr@10",)) for one in claim.artefacts)
    return replace(claim, datasets=("ml-100k",), artefacts=artefacts)


GAIN = narrow("pfedclr-calibration-helps")
NOISE = narrow("pfedclr-noise-costs-little")


def users(hits: int, count: int = 100) -> list[int]:
    """Ranks of users of whom the first `hits` are hit."""
    return [HIT] * hits + [MISS] * (count - hits)


def moved(hits: int, count: int, lost: int, gained: int) -> list[int]:
    """Ranks as those of `users`, but that some hits are `lost` and other users `gained`."""
    return [MISS] * lost + [HIT] * (hits - lost + gained) + [MISS] * (count - hits - gained)


def runs_under(
    claim: Claim, name: str, key: str, dataset: str = "ml-100k", seeds: Sequence[int] = (0,)
) -> list[RunId]:
    """The runs of a line under a condition."""
    (artefact, *_) = claim.artefacts
    return runs_by_line(claim, artefact, METHODS, seeds, None, (), CONDITIONS)[name, dataset, key]


def train(
    results: Path,
    claim: Claim,
    ranks: Mapping[str, Sequence[int]],
    keys: Sequence[str] = (PUBLISHED.key, MAIN.key),
    seeds: Sequence[int] = (0,),
    validation: Mapping[str, float] | None = None,
    conditions: Sequence[Condition] = CONDITIONS,
    **more: Any,
) -> None:
    """Made runs of a claim's lines; `ranks` by the line's name.

    On validation each line has as many hits as on test, or `validation` says how many.
    """
    for artefact in claim.artefacts:
        of_lines = runs_by_line(claim, artefact, METHODS, seeds, None, (), conditions)
        for (name, _, key), runs in of_lines.items():
            for run in runs if key in keys and name in ranks else ():
                found = ranks[name]
                hits = (validation or {}).get(name, found.count(HIT) / len(found))
                write_run(results, run, METHODS, ranks=found, final=hits / 0.9, **more)


def reproduce(results: Path, claim: Claim, seeds: Sequence[int] = (0,), count: int = 100) -> None:
    """Runs of all of a claim's lines that have the printed numbers under its paper's own protocol."""
    lines = named_lines(claim.artefacts[0])
    for dataset in claim.datasets:
        ranks = {}
        for name in claim.lines:
            number = printed(claim.paper, claim.artefacts[0].printed, dataset, lines[name].printed, "hr@10")
            assert number is not None
            ranks[name] = users(round(count * number.value), count)
        train(results, replace(claim, datasets=(dataset,)), ranks, keys=(PUBLISHED.key,), seeds=seeds)


def diverge(results: Path, claim: Claim, name: str, round_: int, key: str = MAIN.key, seed: int = 0) -> None:
    """Let the made run of a line be one that diverged."""
    (run,) = runs_under(claim, name, key, seeds=(seed,))
    path = results / run.folder / "run.json"
    best = round_ - 1 if round_ > 1 else 10
    rounds = {"best_validation": best, "best_test": best, "last": 10}
    write_checked_json(
        path, read_checked_json(path) | {"rounds": rounds, "diverged": {"round": round_, "why": "so"}}
    )


def evidence(results: Path, **changes: Any) -> Evidence:
    """What is below a folder of results."""
    given = {"seeds": (0,), "rounds": None, "unavailable": {}, "runs": runs_below(results)} | changes
    return Evidence(results, METHODS, **given)


def judged(results: Path, claim: Claim, metric: str = "hr@10", **changes: Any) -> Judgement:
    """The one judgement of a claim in a metric."""
    (found,) = (one for one in judge([claim], evidence(results, **changes)) if one.metric == metric)
    return found
