r"""Time rounds of the authors' code and of ours: the same split, the same sizes, one machine, in one run.

    python -m benchmarks.authors --code pfedrec --checkout ../IJCAI-23-PFedRec --restored \
        --data results/data/ml-100k --out authors.json

None of their code is here: you provide the checkout. `--python` names a Python with the packages it needs.
With `--restored` a newer Python runs it, with removed functions put back (`benchmarks.older_packages`), also
without a GPU. The split is written as the table of ratings that their loader reads. Every user's latest row
is our test item, and the one before our validation item, so that their rule finds our split. A round is timed
by their log, from its heading to the end of training: with negative sampling, without evaluation, as in ours.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.engines import benchmark_method, maker_of
from fedrec.config.methods import load_methods
from fedrec.data.split import TRAIN, Split, read_split
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.files.atomic import write_text
from fedrec.runs.device import device_name, device_named

_ENGINE = "fused"
_ENTRY = "train.py"
_RESTORING = Path(__file__).with_name("older_packages.py")
_LAST_LINES = 12


@dataclass(frozen=True)
class Code:
    """The command, input and log format of one paper's code."""

    method: str
    """Ours of the same name, whose settings are passed on."""
    ratings: str
    """Where it looks for ratings, seen from the checkout; `{dataset}` is its name of the dataset."""
    dataset: Mapping[str, str]
    """Its names of datasets, by ours."""
    arguments: tuple[str, ...]
    folders: tuple[str, ...]
    """What it writes to and does not make."""
    begins: str
    ends: str
    separators: Mapping[str, str]
    """Between columns, where that is no comma, by its name of the dataset."""


CODES = {
    "pfedrec": Code(
        method="pfedrec",
        ratings="/data/{dataset}/ratings.dat",
        dataset={"ml-100k": "ml-100k", "ml-1m": "ml-1m"},
        arguments=("--dataset", "{dataset}", "--device_id", "0"),
        folders=("log", "sh_result"),
        begins=r"Round \d+ starts",
        ends=r"Testing phase",
        separators={"ml-1m": "::"},
    ),
    "fedrap": Code(
        method="fedrap",
        ratings="../datasets/{dataset}/fedrec.dat",
        dataset={"ml-100k": "movielens", "ml-1m": "movielens"},
        arguments=("--dataset", "{dataset}", "--data_file", "fedrec.dat"),
        folders=("logs",),
        begins=r"Round \d+ starts",
        ends=r"Time consuming",
        separators={},
    ),
}
_SIZES = {
    "latent_dim": "d",
    "batch_size": "batch_size",
    "local_epoch": "local_epochs",
    "num_negative": "negatives",
}
"""Their options that both codes share, by our settings."""


def ratings_text(split: Split, separator: str) -> str:
    """The split as rows of user, item, rating and time, with the test item last and validation before it."""
    order = np.lexsort((split.item, split.part, split.user))
    user, item, part = split.user[order], split.item[order], split.part[order]
    # Training rows are ordered by item: what lies further back does not matter to leave-one-out.
    moment = np.where(part == TRAIN, item, split.items + part.astype(np.int64))
    rows = zip(user.tolist(), item.tolist(), moment.tolist(), strict=True)
    return "".join(f"{separator.join((str(who), str(what), '1', str(when)))}\n" for who, what, when in rows)


def place_ratings(file: Path, text: str) -> None:
    """Write ratings to the path that the code reads; refuse to replace a file that differs."""
    if file.is_file() and file.read_text(encoding="utf-8") != text:
        raise ConfigurationError(
            f"{file} holds other ratings; move it away, or name another place: --ratings."
        )
    write_text(file, text)


def round_seconds(command: Sequence[str], folder: Path, begins: str, ends: str, rounds: int) -> list[float]:
    """Run a program and time its rounds by its output; raise `ConfigurationError` where some are missing."""
    environment = os.environ | {"PYTHONUNBUFFERED": "1"}
    seconds: list[float] = []
    started: float | None = None
    last: deque[str] = deque(maxlen=_LAST_LINES)
    with subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            now = time.perf_counter()
            last.append(line)
            if re.search(begins, line):
                started = now
            elif started is not None and re.search(ends, line):
                seconds.append(now - started)
                started = None
    if len(seconds) != rounds:
        raise ConfigurationError(
            f"{' '.join(command)} in {folder}: {len(seconds)} of {rounds} rounds were seen, "
            f"exit status {process.returncode}. Its last words:\n{''.join(last)}"
        )
    return seconds


def command_of(
    code: Code,
    python: Sequence[str],
    dataset: str,
    settings: Mapping[str, Any],
    rounds: int,
    more: Sequence[str],
) -> list[str]:
    """The command of their entry point with our sizes; a later option overrides an earlier one."""
    sizes = [word for option, ours in _SIZES.items() for word in (f"--{option}", str(settings[ours]))]
    own = [word.format(dataset=dataset) for word in code.arguments]
    return [*python, _ENTRY, *own, *sizes, "--num_round", str(rounds), *more]


def typical(seconds: Sequence[float]) -> float:
    """The median, without the first round if there are others, since that one includes the set-up."""
    return statistics.median(seconds[1:] or seconds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Time their rounds and ours, print the ratio and write a report."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--code", choices=CODES, required=True, help="whose code the checkout is")
    parser.add_argument("--checkout", type=Path, required=True, help="the folder of its train.py")
    parser.add_argument(
        "--python", default=sys.executable, help="a Python with its packages (default: this one)"
    )
    parser.add_argument(
        "--restored", action="store_true", help="put back what newer packages have dropped since"
    )
    parser.add_argument("--data", type=Path, required=True, help="a dataset's folder, with its splits")
    parser.add_argument("--protocol", default="clean", help="which of its splits (default: %(default)s)")
    parser.add_argument("--dataset", help="its name of the dataset (default: by the name of the folder)")
    parser.add_argument(
        "--ratings", type=Path, help="where it reads ratings (default: where its public code does)"
    )
    parser.add_argument("--rounds", type=int, default=3, help="default: %(default)s")
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="auto", help="of ours")
    parser.add_argument("--config", type=Path, default=Path("config"), help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")
    parser.add_argument("more", nargs="*", help="further arguments of theirs, behind --")
    parsed = parser.parse_args(arguments)
    code = CODES[parsed.code]
    dataset = parsed.dataset or code.dataset.get(parsed.data.name)
    if dataset is None:
        raise ConfigurationError(f"{parsed.code} has no name for {parsed.data.name}; give one: --dataset.")
    if not (parsed.checkout / _ENTRY).is_file():
        raise ConfigurationError(f"{parsed.checkout} has no {_ENTRY}: it is no checkout of {parsed.code}.")
    split = read_split(parsed.data / parsed.protocol)
    ratings = parsed.ratings or parsed.checkout / code.ratings.format(dataset=dataset)
    place_ratings(ratings, ratings_text(split, code.separators.get(dataset, ",")))
    for folder in code.folders:
        (parsed.checkout / folder).mkdir(exist_ok=True)
    maker, paper = maker_of(load_methods(parsed.config / "methods.yaml"), code.method, None, [])
    python = [parsed.python, str(_RESTORING)] if parsed.restored else [parsed.python]
    command = command_of(code, python, dataset, maker.settings, parsed.rounds, parsed.more)
    theirs = round_seconds(command, parsed.checkout, code.begins, code.ends, parsed.rounds)
    device = device_named(parsed.device)
    ours = benchmark_method(maker, Clients.of_split(split, device), [_ENGINE], parsed.rounds)
    report = {
        "code": parsed.code, "method": maker.method, "paper": paper, "data": parsed.data.name,
        "device": device_name(device), "torch": torch.__version__, "restored": parsed.restored,
        "command": command[command.index(_ENTRY) :],
        "theirs": typical(theirs), "ours": ours[_ENGINE], "ratio": typical(theirs) / ours[_ENGINE],
        "their_rounds": theirs, "our_rounds": ours,
    }  # fmt: skip
    write_text(parsed.out, json.dumps(report, indent=2) + "\n")
    print(
        f"theirs {report['theirs']:.3f} s a round, ours {report['ours']:.3f} s: {report['ratio']:.1f} times"
    )


if __name__ == "__main__":
    main()
