"""The corpus by every engine: counts of outcomes, and whatever differs from the loop.

    python -m tests.programs
    python -m tests.programs --engine fused batched --only to_long half --json outcomes.json
    python -m tests.programs --unexpected     ends with status 1 where a case is not as it expects

Engines are `fused`, `batched`, `loop`, and `checked`: the one that `fedrec train` uses.
"""

import argparse
import json
import multiprocessing
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path

from tests.programs.cases import Case
from tests.programs.corpus import CASES
from tests.programs.outcome import OUTCOMES, TRACEBACK, WRONG, Outcome, as_json, mistakes_of, outcome_of


def table_of(outcomes: Iterable[Outcome]) -> str:
    """How many cases came out how, by engine."""
    counts = Counter((outcome.engine, outcome.kind) for outcome in outcomes)
    engines = dict.fromkeys(engine for engine, _ in counts)
    columns = [*OUTCOMES, "of these compiled"]
    lines = ["| engine | " + " | ".join(columns) + " |", "| --- |" + " ---: |" * len(columns)]
    compiled = Counter(outcome.engine for outcome in outcomes if outcome.by == "compiled")
    for engine in engines:
        row = [counts[engine, column] for column in OUTCOMES] + [compiled[engine]]
        lines.append(f"| {engine} | " + " | ".join(map(str, row)) + " |")
    return "\n".join(lines)


Work = list[tuple[Case, str]]


def in_a_process(work: Work, device: str) -> Iterator[Outcome]:
    """What engines make of cases, computed in another process: where a kernel ends it, a new one does the rest."""
    if device != "cpu":
        # A process that has used a GPU cannot be split.
        yield from (outcome_of(case, engine, "cpu" if engine == "loop" else device) for case, engine in work)
        return
    context = multiprocessing.get_context("fork")
    while work:
        here, there = context.Pipe(duplex=False)
        process = context.Process(target=_send_all, args=(there, work), daemon=True)
        process.start()
        there.close()
        left = list(work)
        while left:
            case, engine = left.pop(0)
            try:
                yield here.recv()
            except EOFError:
                process.join()
                yield Outcome(
                    case.name, engine, TRACEBACK, f"its process ended with status {process.exitcode}"
                )
                break
        process.join()
        work = left


def _send_all(there: Connection, work: Work) -> None:
    for case, engine in work:
        there.send(outcome_of(case, engine))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", nargs="+", default=["fused", "batched", "loop"])
    parser.add_argument("--only", nargs="+", default=[], help="names of cases")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--json", type=Path, help="a file for all outcomes")
    parser.add_argument(
        "--unexpected", action="store_true", help="print what is not as a case expects instead"
    )
    asked = parser.parse_args()
    unknown = sorted(set(asked.only) - set(CASES))
    if unknown:
        parser.error(f"no case is called {', '.join(unknown)}")
    chosen = [case for name, case in CASES.items() if not asked.only or name in asked.only]
    outcomes: list[Outcome] = []
    mistakes: list[str] = []
    work = [(case, engine) for case in chosen for engine in asked.engine]
    for outcome in in_a_process(work, asked.device):
        outcomes.append(outcome)
        found = mistakes_of(CASES[outcome.case], outcome)
        mistakes += found
        if asked.unexpected:
            print(*found, sep="\n", end="\n" if found else "", flush=True)
        elif outcome.kind in (WRONG, TRACEBACK) or asked.only:
            print(outcome, flush=True)
    print(table_of(outcomes))
    if asked.json is not None:
        asked.json.write_text(json.dumps([as_json(one) for one in outcomes], indent=1), encoding="utf-8")
    sys.exit(asked.unexpected and bool(mistakes))


if __name__ == "__main__":
    main()
