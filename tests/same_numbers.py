"""Whether two versions of the code give the same numbers, and how far two machines or engines are apart.

    python -m tests.same_numbers record before     # every method, plug-in and variant on the synthetic dataset
    ... change the code ...
    python -m tests.same_numbers record after
    python -m tests.same_numbers compare before after

    python -m tests.same_numbers record loop --engine loop --methods fedmf pfedclr
    python -m tests.same_numbers distance before loop

Each run trains for three rounds, under the published and the clean protocol, on one thread and in one fixed
amount of memory. Compared are the values of `curve.parquet` and `ranks.parquet`, not their metadata, which
names the code. With `--data results/data` a recording also notes the content hash of every split there.
`--demo` names the folder of the synthetic dataset and its splits, prepared elsewhere: machines that only train
need not be able to prepare.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.compute as pc
import pyarrow.parquet as pq
import torch

from fedrec.cli.main import main as fedrec
from fedrec.config.methods import load_methods
from fedrec.config.modules import method_names
from fedrec.data.split import read_split
from fedrec.plan.train_request import TrainRequest
from fedrec.runs.train import train
from tests.compositions import compositions

ROOT = Path(__file__).resolve().parents[1]
METHODS = ROOT / "config/methods.yaml"
TABLES = ("curve", "ranks")
Key = tuple[str, str, int]
"""Method, protocol and seed of a run."""


def record(
    out: Path,
    data: Path | None,
    demo: Path | None = None,
    methods: Sequence[str] = (),
    engine: str = "auto",
    device: str = "cpu",
) -> None:
    """Train `methods`, or everything, into `out`, and note the hashes of the splits below `data`."""
    torch.set_num_threads(1)
    demo = demo or prepared(out / "data")
    names = methods or everything()
    for number, name in enumerate(names):
        for protocol in ("published", "clean"):
            request = TrainRequest(
                data=demo, method=name, protocol=protocol, seed=0, out=out / protocol / f"{number:03d}",
                changes=("rounds=3",), engine=engine, device=device, memory_gib=4.0,
            )  # fmt: skip
            train(request, load_methods(METHODS))
    if data is not None:
        (out / "splits.json").write_text(json.dumps(split_hashes(data), indent=2) + "\n")


def everything() -> list[str]:
    """Every method, composition and variant."""
    # Imported here: it asks for more than machines that only train have.
    from tests.contract.matrix import VARIANTS

    return [*method_names(), *compositions(load_methods(METHODS)), *VARIANTS]


def prepared(folder: Path) -> Path:
    """The synthetic dataset and the splits of every protocol, made by the command line."""
    catalogue, protocols = ROOT / "config/datasets.yaml", ROOT / "config/protocols.yaml"
    demo = folder / "demo"
    steps = [["prepare", "demo", "--catalogue", catalogue, "--raw", folder / "raw", "--out", demo]]
    papers = {entry.paper for entry in load_methods(METHODS).values() if entry.paper is not None}
    names = ("clean", *(f"published-{paper}" for paper in sorted(papers)))
    steps += [["split", "--data", demo, "--protocol", name, "--protocols", protocols] for name in names]
    for step in steps:
        if fedrec([str(word) for word in step]) != 0:
            raise SystemExit(f"fedrec {step[0]} failed")
    return demo


def split_hashes(data: Path) -> dict[str, str]:
    """The content hash of every split below a folder of datasets, by `dataset/protocol`."""
    folders = sorted(path.parent for path in data.glob("*/*/split.parquet"))
    return {f"{folder.parent.name}/{folder.name}": read_split(folder).content_hash() for folder in folders}


def compare(before: Path, after: Path) -> list[str]:
    """Every difference between two recordings, one line each."""
    first, second = dict(runs_of(before)), dict(runs_of(after))
    differences = [f"only in one recording: {key}" for key in sorted(first.keys() ^ second.keys())]
    for key in sorted(first.keys() & second.keys()):
        for table in TABLES:
            old, new = (pq.read_table(folder / f"{table}.parquet") for folder in (first[key], second[key]))
            changed = [
                name for name in old.column_names if name not in new.column_names or old[name] != new[name]
            ]
            changed += [name for name in new.column_names if name not in old.column_names]
            if changed:
                differences.append(f"{' '.join(map(str, key))}, {table}: {', '.join(changed)}")
    old, new = (
        json.loads(path.read_text()) if (path := folder / "splits.json").is_file() else {}
        for folder in (before, after)
    )
    differences += [f"split {name}" for name in sorted(old.keys() & new.keys()) if old[name] != new[name]]
    print(f"{len(first.keys() & second.keys())} runs and {len(old.keys() & new.keys())} splits compared")
    return differences


def distance(one: Path, other: Path) -> Iterator[dict[str, Any]]:
    """How far the runs of two recordings are apart, one row per run that both have.

    `loss`: the largest difference of a round's loss, as a share of it. `ranks`: the share of users whose test
    item has another rank in the last round. `hr`: the largest difference of HR@10 in any round.
    """
    first, second = dict(runs_of(one)), dict(runs_of(other))
    for key in sorted(first.keys() & second.keys()):
        curves, ranks = (
            [pq.read_table(folder / f"{table}.parquet") for folder in (first[key], second[key])]
            for table in TABLES
        )
        loss, hits = (
            [np.nan_to_num(curve[name].to_numpy()) for curve in curves] for name in ("loss", "test_hr@10")
        )
        last = [table.filter(pc.equal(table["at"], "last"))["test_rank"].to_numpy() for table in ranks]
        yield {
            "run": " ".join(map(str, key)),
            "loss": float(np.max(np.abs(loss[0] - loss[1]) / np.maximum(np.abs(loss[0]), 1e-30))),
            "ranks": float(np.mean(last[0] != last[1])),
            "hr": float(np.max(np.abs(hits[0] - hits[1]))),
        }


def print_distances(rows: Sequence[Mapping[str, Any]]) -> None:
    """One line per run, the farthest last, and the farthest of each measure."""
    for row in sorted(rows, key=lambda row: row["loss"]):
        print("{run:<60} loss {loss:.1e}  ranks {ranks:.4f}  HR@10 {hr:.4f}".format(**row))
    farthest = {name: max(row[name] for row in rows) for name in ("loss", "ranks", "hr")}
    print(
        "{0} runs, at most: loss {loss:.1e}, ranks {ranks:.4f}, HR@10 {hr:.4f}".format(len(rows), **farthest)
    )


def runs_of(recording: Path) -> Iterator[tuple[Key, Path]]:
    """The runs of a recording, and their folders."""
    for path in sorted(recording.rglob("run.json")):
        run = json.loads(path.read_text())
        yield (run["method"], run["protocol"]["name"], run["seed"]), path.parent


def main() -> None:
    """Record or compare; differences end in status 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    recording = commands.add_parser("record")
    recording.add_argument("out", type=Path)
    recording.add_argument("--data", type=Path, help="a folder of prepared datasets, such as results/data")
    recording.add_argument("--demo", type=Path, help="the synthetic dataset, prepared elsewhere")
    recording.add_argument("--methods", nargs="+", default=(), help="only these")
    recording.add_argument("--engine", default="auto")
    recording.add_argument("--device", default="cpu")
    for name in ("compare", "distance"):
        comparing = commands.add_parser(name)
        comparing.add_argument("before", type=Path)
        comparing.add_argument("after", type=Path)
    parsed = parser.parse_args()
    if parsed.command == "record":
        record(parsed.out, parsed.data, parsed.demo, parsed.methods, parsed.engine, parsed.device)
        return
    if parsed.command == "distance":
        print_distances(list(distance(parsed.before, parsed.after)))
        return
    differences = compare(parsed.before, parsed.after)
    print("\n".join(differences) or "no difference")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
