"""Plants one change of a number after another, and shows that the comparison of commits refuses each.

    python -m tests.prove_equal.plants [FOLDER]

Each plant is a commit in a clone of this repository in FOLDER (default: a temporary one), compared there with HEAD.
A plant changes one constant or operator. A harmless refactoring must be accepted. Nothing of this repository changes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.same_numbers import ROOT

_REFUSED = "NOT EQUAL: "
_ACCEPTED = "EQUAL: "


@dataclass(frozen=True)
class Edit:
    """A text of a file that is replaced by another; a new file replaces nothing."""

    file: str
    old: str
    new: str

    def apply(self, folder: Path) -> None:
        path = folder / self.file
        text = path.read_text(encoding="utf-8") if self.old else self.old
        if text.count(self.old) != 1:
            raise SystemExit(f"{self.file} has not one text {self.old!r}. Correct the plant.")
        path.write_text(text.replace(self.old, self.new), encoding="utf-8")


@dataclass(frozen=True)
class Plant:
    """A change of the code, and the training that it is compared by."""

    title: str
    edits: tuple[Edit, ...]
    engine: str = "fused"
    method: str = "local-only"


def _plant(
    title: str, file: str, old: str, new: str, engine: str = "fused", method: str = "local-only"
) -> Plant:
    return Plant(title, (Edit(f"fedrec/{file}", old, new),), engine, method)


_LOOP = "federation/engines/loop.py"
_BATCHED = "federation/engines/batched/optimiser.py"
_FUSED = "federation/engines/fused"
PLANTS = (
    _plant("Adam's epsilon, loop", _LOOP, "Adam(groups)", "Adam(groups, eps=1e-7)", "loop"),
    _plant("Adam's epsilon, batched", _BATCHED, "_EPSILON = 1e-8", "_EPSILON = 1e-7", "batched"),
    _plant("Adam's epsilon, fused", f"{_FUSED}/kernel/optimiser_steps.py", "{root} + (real)1e-8)", "{root} + (real)1e-7)"),
    _plant("rounded rate, loop", _LOOP, '"lr": rate,', '"lr": round(rate, 2),', "loop"),
    _plant(
        "rounded rate, batched", _BATCHED,
        "rate, decay = self.rule.rates[name],", "rate, decay = round(self.rule.rates[name], 9),", "batched",
    ),
    _plant("decay of Adam's moment, fused", f"{_FUSED}/kernel/optimiser_steps.py", "= (real)0.999 * {second}", "= (real)0.9990001 * {second}"),
    _plant("rounded rate, fused", f"{_FUSED}/kernel/prologue.py", "(real)rates[{number}];", "(real)(float)rates[{number}];"),
    _plant("off by one, negatives", "federation/draw_kernels.py", "(attempt << 20) + place,", "(attempt << 20) + place + 1,"),
    _plant("off by one, negatives without a compiler", "federation/draws.py", "LANES * attempt + lane)", "LANES * attempt + lane - 1)"),
    _plant("off by one, shuffle on a GPU", "native/shuffle.py", "int other = place - 1; other >= 0", "int other = place - 1; other > 0"),
    _plant("order of sums on a GPU", "federation/server/row_sums.py", "groups = LANES / columns;", "groups = LANES / columns / 2;"),
    _plant("threshold that no run reaches", f"{_FUSED}/adam.py", "SETTLED = 1 << 16", "SETTLED = 1 << 15"),
    _plant("weight of an upload", "federation/server/row_sums.py", "share = weight[owner[at]];", "share = weight[owner[at]] * 1.0000001;", method="colr"),
    _plant("equal scores in a rank", "evaluation/rank_kernel.py", "equal += one == own;", "equal += one == own + 1;"),
    _plant("equal scores in a rank without a compiler", "evaluation/ranking.py", "equal = ((others == target_scores) & ~hidden)", "equal = ((others >= own) & ~hidden)"),
    _plant("operator of a hit", "evaluation/metrics.py", "np.where(rank <= cutoff,", "np.where(rank < cutoff,"),
)  # fmt: skip
_MOVED = '''"""Adam's corrections."""

import torch
from torch import Tensor

from fedrec.federation.engines.fused.adam import FIRST, SECOND


def adam_corrections(longest: int) -> tuple[Tensor, Tensor]:
    """Adam's bias1 and bias2 for every mini-batch."""
    batches = torch.arange(longest + 1, dtype=torch.float64)
    return 1 / (1 - FIRST**batches), 1 / (1 - SECOND**batches).sqrt()
'''
HARMLESS = Plant(
    "harmless: a function with other names, in another module",
    (
        Edit(f"fedrec/{_FUSED}/adam_corrections.py", "", _MOVED),
        Edit(
            f"fedrec/{_FUSED}/adam.py",
            '''def corrections(longest: int) -> tuple[Tensor, Tensor]:
    """Adam's bias1 and bias2 of the mini-batches 0 to `longest`, each `(longest + 1,)`, on the CPU.

    Mini-batch 0 does not exist; its entries are infinite.
    """
    count = torch.arange(longest + 1, dtype=torch.float64)
    return 1 / (1 - FIRST**count), 1 / (1 - SECOND**count).sqrt()


''',
            "",
        ),
        Edit(
            f"fedrec/{_FUSED}/compiling.py",
            f"from fedrec.{_FUSED.replace('/', '.')}.adam import adam_tables, corrections",
            f"from fedrec.{_FUSED.replace('/', '.')}.adam import adam_tables\n"
            f"from fedrec.{_FUSED.replace('/', '.')}.adam_corrections import adam_corrections",
        ),
        Edit(
            f"fedrec/{_FUSED}/compiling.py",
            "bias2 = corrections(longest)",
            "bias2 = adam_corrections(longest)",
        ),
    ),
)


class Field:
    """A clone of this repository in which changes are planted."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "clone"
        if not self.folder.is_dir():
            subprocess.run(["git", "clone", "-q", "--shared", str(ROOT), str(self.folder)], check=True)
        self._git("checkout", "-q", "--detach", _git(ROOT, "rev-parse", "HEAD"))
        self.before = self._git("rev-parse", "HEAD")

    def reasons(self, plant: Plant) -> list[str]:
        """Every reason for which the comparison refuses a plant; none where it accepts it."""
        command = [
            sys.executable,
            "-m",
            "tests.prove_equal",
            self.before,
            self._committed(plant),
            "--dry-run",
        ]
        command += ["--methods", plant.method, "--engines", plant.engine]
        environment = {**os.environ, "PYTHONPATH": str(self.folder)}
        done = subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False
        )
        lines = done.stdout.splitlines()
        found = [line.removeprefix(_REFUSED) for line in lines if line.startswith(_REFUSED)]
        if bool(found) == any(line.startswith(_ACCEPTED) for line in lines):
            raise SystemExit(
                f"{plant.title}: the comparison ended without a result.\n{done.stdout}{done.stderr}"
            )
        return found

    def _committed(self, plant: Plant) -> str:
        """A commit of the plant on top of HEAD."""
        self._git("checkout", "-q", "--detach", self.before)
        for edit in plant.edits:
            edit.apply(self.folder)
        self._git("add", "fedrec")
        identity = ("-c", "user.name=plant", "-c", "user.email=plant@localhost", "-c", "commit.gpgsign=false")
        self._git(*identity, "commit", "-q", "--no-verify", "-m", plant.title)
        commit = self._git("rev-parse", "HEAD")
        self._git("checkout", "-q", "--detach", self.before)
        return commit

    def _git(self, *words: str) -> str:
        return _git(self.folder, *words)


def _git(folder: Path, *words: str) -> str:
    return subprocess.run(
        ["git", *words], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


def outcomes(folder: Path, plants: Sequence[Plant]) -> Iterator[tuple[Plant, list[str]]]:
    """The reasons for which each plant is refused."""
    field = Field(folder)
    for plant in plants:
        yield plant, field.reasons(plant)


def main() -> None:
    """Print a table of plants with the reasons; end with status 1 where one is accepted or the harmless one is not."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(sys.argv[1] if len(sys.argv) > 1 else temporary)
        wrong = 0
        for plant, reasons in outcomes(folder, (*PLANTS, HARMLESS)):
            wrong += bool(reasons) == (plant is HARMLESS)
            outcome = f"refused | {'; '.join(reasons)}" if reasons else "accepted |"
            print(f"| {plant.title} | {plant.method}, {plant.engine} | {outcome} |", flush=True)
    raise SystemExit(int(wrong > 0))


if __name__ == "__main__":
    main()
