"""Whether damaged results are ever taken for good.

    python -m tests.damage --count 420 --seed 0

Makes small finished results, damages one file at a time (flipped bytes, cuts, zeros, the file of another run
in its place) and runs what reads it. Allowed is an error that names the file, or the output of undamaged
results; the table counts both, and whatever else happened.
"""

import argparse
import contextlib
import io
import itertools
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from unittest import mock

import numpy as np

import fedrec
from fedrec.cli.main import main as command
from fedrec.config.methods import canonical
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.data.interactions import read_interactions_file, write_interactions
from fedrec.data.split import make_split, write_split
from fedrec.errors import FedrecError, ResultError
from fedrec.plan.runs import RunId
from fedrec.plan.targets import Target, files_of
from fedrec.plan.train_request import TrainRequest
from fedrec.reporting.artefact_runs import comparison_runs_of
from fedrec.reporting.build import build
from fedrec.reporting.figures.convergence import curve_rows
from fedrec.reporting.figures.figure_data import line_rows
from fedrec.reporting.page.page import write_page
from fedrec.runs.record import RunRecord
from fedrec.runs.train import train
from fedrec.runs.training import Training
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_data import made_interactions
from tests.made_project import project_with

PAPER, DATASET, PROTOCOLS = "pfedclr", "demo", ("clean", "published-pfedclr")
SMALL = ("d=4", "local_epochs=1", "rounds=3")
SMALL_PROTOCOLS = {
    name: replace(protocol, candidates=15)
    for name, protocol in load_protocols(ROOT / "config/protocols.yaml").items()
}
OUTCOMES = ("clear", "same output", "unclear", "other output", "traceback")
"""What may happen; the first two are allowed."""


class KilledError(Exception):
    """Stands for the end of a process before its results are written."""


@dataclass(frozen=True)
class Case:
    """A kind of file: one of them, others of its kind to take its place, and what reads it."""

    path: Path
    others: tuple[Path, ...]
    readers: tuple[Callable[[], object], ...]


class Results:
    """Small finished results, and everything that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.results = folder / "results"
        self.data = self.results / "data" / DATASET
        self.numbers = itertools.count()
        self._make_data(DATASET, 0)
        self._make_data("ml-100k", 1)
        fedmf = canonical(METHODS, "fedmf" + "".join(f"[{change}]" for change in SMALL))
        self.runs = [
            RunId(PAPER, DATASET, protocol, method, 0)
            for protocol in PROTOCOLS
            for method in (fedmf, "popularity")
        ]
        for run in self.runs:
            self.trained(run, self.results / run.folder)
        self.killed = [folder / f"killed{seed}" for seed in range(2)]
        for seed, out in enumerate(self.killed):
            with (
                mock.patch.object(Training, "_write", side_effect=KilledError),
                contextlib.suppress(KilledError),
            ):
                self.trained(replace(self.runs[0], seed=seed), out)
        for dataset in (DATASET, "ml-100k"):
            self.command("describe", "--data", self.data.parent / dataset, "--protocol", *PROTOCOLS,
                         "--out", self.data.parent / dataset / "statistics.json")  # fmt: skip
        self.project = replace(project_with(self.results, seeds=[0]), protocols=SMALL_PROTOCOLS)
        self.targets = {
            "demo_comparison": ("comparison", self.runs, (), {}),
            "demo_statistics": ("statistics", (), (f"data/{DATASET}/statistics.json",), {"unavailable": {}}),
        }
        for name in self.targets:
            build(self.target(name), self.project)

    def _make_data(self, dataset: str, seed: int) -> None:
        draws = np.random.default_rng(seed)
        rows = [
            (user, int(item), step)
            for user in range(12)
            for step, item in enumerate(draws.permutation(60)[:9])
        ]
        interactions = replace(made_interactions(rows, items=60), dataset=dataset)
        folder = self.results / "data" / dataset
        write_interactions(folder / "interactions.parquet", interactions, {})
        for protocol in PROTOCOLS:
            write_split(
                make_split(interactions, protocol_named(SMALL_PROTOCOLS, protocol)), folder / protocol
            )

    def target(self, name: str, as_name: str | None = None) -> Target:
        layout, runs, reads, content = self.targets[name]
        name = as_name or name
        return Target(
            name, "table", layout, files_of("table", name), tuple(runs), tuple(reads), content, "f" * 64
        )

    def trained(self, run: RunId, out: Path) -> Path:
        with contextlib.redirect_stderr(io.StringIO()):
            request = TrainRequest(
                data=self.data, method=run.method, paper=run.paper, protocol=run.protocol, seed=run.seed, out=out,
                device="cpu", checkpoint_seconds=0.0,
            )  # fmt: skip
            train(request, METHODS)
        return out

    def command(self, *words: object) -> str:
        """What a command of `fedrec` prints; its message, where it fails, is an error."""
        said, wrong = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(wrong):
            status = command([str(word) for word in words])
        if status:
            raise ResultError(wrong.getvalue())
        return said.getvalue()

    def scratch(self) -> Path:
        return self.folder / f"scratch{next(self.numbers)}"

    def files_of_run(self, out: Path) -> list[bytes]:
        try:
            return [
                (out / name).read_bytes() for name in ("curve.parquet", "ranks.parquet", "state.safetensors")
            ]
        finally:
            shutil.rmtree(out)

    def resume(self) -> object:
        out = shutil.copytree(self.killed[0], self.scratch())
        return self.files_of_run(self.trained(replace(self.runs[0]), out))

    def retrain(self) -> object:
        return self.files_of_run(self.trained(self.runs[0], self.scratch()))

    def resplit(self) -> object:
        interactions = read_interactions_file(self.data / "interactions.parquet")
        return make_split(interactions, protocol_named(SMALL_PROTOCOLS, "clean")).content_hash()

    def describe(self) -> object:
        out = self.folder / "described.json"
        self.command("describe", "--data", self.data, "--protocol", *PROTOCOLS, "--out", out)
        return out.read_text()

    def frame(self) -> object:
        return fedrec.results(self.results).write_csv()

    def compare(self) -> object:
        return self._built("demo_comparison")

    def statistics(self) -> object:
        return self._built("demo_statistics")

    def _built(self, name: str) -> object:
        target = self.target(name, f"again_{name}")
        build(target, self.project)
        return [(self.results / file).read_text() for file in target.files]

    def converge(self) -> object:
        subject = comparison_runs_of(self.target("demo_comparison"), self.project)
        return repr(line_rows(subject, curve_rows))

    def page(self) -> object:
        content = {
            "datasets": [DATASET], "targets": ["demo_comparison"], "artefacts": [], "built": [],
            "statistics": ["demo_statistics"], "kept": {}, "prefix": "", "audit": [], "unavailable": {},
        }  # fmt: skip
        path = self.results / "report/report.html"
        records = [RunRecord(self.results / run.folder) for run in self.runs]
        write_page(
            path,
            self.results,
            self.project.papers,
            dict.fromkeys(self.targets, "table"),
            content,
            records,
            self.project.methods,
        )
        return path.read_text()

    def planned(self) -> object:
        with mock.patch("fedrec.cli.build.project_of", return_value=self.project):
            self.command("build", "demo_comparison", "--plan", self.results / "plan/demo_comparison.json")
        return (self.results / "tables/demo_comparison.md").read_text()

    def opened(self) -> object:
        run = fedrec.open_run(self.results / self.runs[0].folder)
        tables = [
            frame.write_csv() for frame in (run.curve, run.ranks, run.timing, run.metrics, run.settings_frame)
        ]
        return [dict(run.summary), tables, run.scores([0, 3, 5], [1, 2, 59]).tolist()]

    def audit(self) -> object:
        return self.command("audit", "--run", self.results / self.runs[0].folder)

    def cases(self) -> dict[str, Case]:
        """Every kind of file."""
        folder, other = (self.results / run.folder for run in (self.runs[0], self.runs[2]))
        plain = self.results / self.runs[1].folder
        split, another = self.data / "clean", self.data / "published-pfedclr"
        elsewhere = self.data.parent / "ml-100k"
        tables, plan = self.results / "tables", self.results / "plan"

        def of_run(name: str, *readers: Callable[[], object]) -> Case:
            return Case(folder / name, (other / name, plain / name), readers)

        return {
            "checkpoint": Case(
                self.killed[0] / "checkpoint.safetensors",
                (self.killed[1] / "checkpoint.safetensors", folder / "state.safetensors"),
                (self.resume,),
            ),
            "state": of_run("state.safetensors", self.opened),
            "run.json": of_run("run.json", self.frame, self.compare, self.converge, self.page, self.opened, self.audit),
            "curve": of_run("curve.parquet", self.converge, self.opened),
            "ranks": of_run("ranks.parquet", self.compare, self.opened),
            "timing": of_run("timing.parquet", self.page, self.opened),
            "split": Case(
                split / "split.parquet",
                (another / "split.parquet", elsewhere / "clean/split.parquet"),
                (self.retrain, self.opened, self.audit, self.describe),
            ),
            "candidates": Case(
                split / "candidates.parquet",
                (another / "candidates.parquet", elsewhere / "clean/candidates.parquet"),
                (self.retrain, self.opened, self.describe),
            ),
            # What is split anew from another dataset's interactions is a right split of these.
            "interactions": Case(self.data / "interactions.parquet", (), (self.resplit, self.describe)),
            "statistics": Case(
                self.data / "statistics.json", (elsewhere / "statistics.json",), (self.statistics,)
            ),
            "table": Case(tables / "demo_comparison.json", (tables / "demo_statistics.json",), (self.page,)),
            "plan": Case(plan / "demo_comparison.json", (plan / "demo_statistics.json",), (self.planned,)),
        }  # fmt: skip


def flipped(content: bytes, chance: random.Random) -> bytes:
    changed = bytearray(content)
    for _ in range(chance.choice((1, 1, 2, 8))):
        changed[chance.randrange(len(changed))] ^= chance.randrange(1, 256)
    return bytes(changed)


def cut(content: bytes, chance: random.Random) -> bytes:
    return content[: chance.randrange(len(content))]


def zeroed(content: bytes, chance: random.Random) -> bytes:
    start = chance.randrange(len(content))
    length = min(len(content) - start, chance.choice((1, 16, 512)))
    return content[:start] + bytes(length) + content[start + length :]


DAMAGES = {"flipped": flipped, "cut": cut, "zeroed": zeroed}


def damages(cases: dict[str, Case], count: int, seed: int) -> Iterator[tuple[str, str, bytes]]:
    """Which file, what is done to it, and what it then holds: each file in turn."""
    chance = random.Random(seed)
    for number in range(count):
        name = list(cases)[number % len(cases)]
        case = cases[name]
        kind = chance.choice([*DAMAGES, *DAMAGES, *(["swapped"] if case.others else [])])
        if kind == "swapped":
            yield name, kind, chance.choice(case.others).read_bytes()
        else:
            yield name, kind, DAMAGES[kind](case.path.read_bytes(), chance)


def outcome_of(reader: Callable[[], object], expected: object, path: Path) -> tuple[str, str]:
    """What reading a damaged file led to, and the words that were said."""
    try:
        return ("same output" if reader() == expected else "other output"), ""
    except FedrecError as error:
        named = path.name in str(error) or str(path.parent) in str(error)
        return ("clear" if named else "unclear"), str(error)
    except Exception as error:
        return "traceback", f"{type(error).__name__}: {error}"


def tried(folder: Path, count: int, seed: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """How often each outcome was met, by the kind of file; and a line for each that is not allowed."""
    results = Results(folder)
    cases = results.cases()
    expected = {reader.__name__: reader() for case in cases.values() for reader in case.readers}
    found: dict[str, Counter[str]] = {name: Counter() for name in cases}
    wrong = []
    for name, kind, content in damages(cases, count, seed):
        case = cases[name]
        whole = case.path.read_bytes()
        case.path.write_bytes(content)
        try:
            met = [
                (*outcome_of(reader, expected[reader.__name__], case.path), reader.__name__)
                for reader in case.readers
            ]
        finally:
            case.path.write_bytes(whole)
        outcome, words, reader = max(
            met, key=lambda one: OUTCOMES.index(one[0]) if one[0] != "clear" else 1.5
        )
        found[name][outcome] += 1
        if outcome not in OUTCOMES[:2]:
            wrong.append(f"{name}, {kind}, {reader}: {outcome} {words}")
    return found, wrong


def table_of(found: dict[str, Counter[str]]) -> str:
    total = sum(found.values(), Counter())
    lines = [("file", *OUTCOMES)]
    lines += [
        (name, *(str(counts[outcome]) for outcome in OUTCOMES))
        for name, counts in (*found.items(), ("all", total))
    ]
    return "\n".join("".join(word.ljust(14) for word in line).rstrip() for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    """Try, print the table, and end with 1 if something happened that may not."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--count", type=int, default=420)
    parser.add_argument("--seed", type=int, default=0)
    parsed = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found, wrong = tried(Path(folder), parsed.count, parsed.seed)
    print("\n".join([table_of(found), *wrong]))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
