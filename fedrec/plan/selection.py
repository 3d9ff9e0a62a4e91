"""Which runs tables, figures and claims are made of."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from fedrec.config.claims import Claim, named_lines
from fedrec.config.papers import BOTH, Artefact, Paper
from fedrec.config.protocol import full_name
from fedrec.config.records import merged_records, spelled_records
from fedrec.plan.runs import RunId, run_of, shortened


def runs_of(
    artefact: Artefact, methods: Mapping[str, Any], seeds: Sequence[int], unavailable: Container[str] = ()
) -> dict[tuple[int, str, str], list[RunId]]:
    """The runs of an artefact on those of its datasets, and splits of them, that are available.

    By the index of the line, the dataset and the protocol's full name: one run per seed. `unavailable` holds
    datasets, and splits of them as `dataset/protocol`.
    """
    return {
        (index, dataset, protocol): [
            run_of(methods, artefact.paper, dataset, protocol, line.run, seed) for seed in seeds
        ]
        for index, line in enumerate(artefact.lines)
        if line.run is not None
        for dataset in artefact.datasets
        if dataset not in unavailable
        for protocol in artefact.protocols
        if f"{dataset}/{protocol}" not in unavailable
    }


def records_of(
    papers: Mapping[str, Paper], methods: Mapping[str, Any], seeds: Sequence[int]
) -> dict[RunId, list[str]]:
    """What runs record for any table or figure, as `--record` takes it; only runs that record something.

    It does not depend on what is to be built: a run's files are the same whatever they were made for.
    """
    texts: dict[RunId, list[str]] = {}
    for paper in papers.values():
        for artefact in paper.artefacts.values():
            for runs in runs_of(artefact, methods, seeds).values() if artefact.record else ():
                for run in runs:
                    texts.setdefault(run, []).extend(artefact.record)
    return {run: spelled_records(merged_records(texts[run])) for run in sorted(texts)}


def runs_by_line(
    claim: Claim,
    artefact: Artefact,
    methods: Mapping[str, Any],
    seeds: Sequence[int],
    rounds: int | None,
    unavailable: Container[str],
) -> dict[tuple[str, str, str], list[RunId]]:
    """The runs a claim is judged by, by line, dataset and the protocol's full name: one per seed.

    They train for `rounds` at most, or as the paper does. `unavailable` holds datasets, and splits of them as
    `dataset/protocol`; their runs are left out.
    """
    lines = named_lines(artefact)
    return {
        (name, dataset, protocol): [
            run_of(methods, claim.paper, dataset, protocol, method, seed)
            for method in shortened(methods, [str(lines[name].run)], claim.paper, dataset, rounds)
            for seed in seeds
        ]
        for name in claim.lines
        for dataset in claim.datasets
        if dataset not in unavailable
        for protocol in (full_name(short, claim.paper) for short in BOTH)
        if f"{dataset}/{protocol}" not in unavailable
    }


def runs_of_claim(
    claim: Claim,
    methods: Mapping[str, Any],
    seeds: Sequence[int],
    rounds: int | None,
    unavailable: Container[str] = (),
) -> list[RunId]:
    """Every run a claim is judged by, under both protocols, each once."""
    groups = [
        runs
        for artefact in claim.artefacts
        for runs in runs_by_line(claim, artefact, methods, seeds, rounds, unavailable).values()
    ]
    return sorted({run for runs in groups for run in runs})
