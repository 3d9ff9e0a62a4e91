"""Whether two versions of the code give the same numbers, byte for byte, on one machine.

    python -m tests.same_numbers record before     # every method, plug-in and variant on the synthetic dataset
    ... change the code ...
    python -m tests.same_numbers record after
    python -m tests.same_numbers compare before after

Each run trains for three rounds, under the published and the clean protocol, on one thread and in one fixed
amount of memory. Compared are the values of `curve.parquet` and `ranks.parquet`, not their metadata, which
names the code. With `--data results/data` a recording also notes the content hash of every split there.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.parquet as pq
import torch

from fedrec.cli.main import main as fedrec
from fedrec.config.methods import load_methods
from fedrec.config.modules import method_names
from fedrec.data.split import read_split
from fedrec.runs.train import train
from tests.compositions import compositions
from tests.conftest import ROOT
from tests.contract.matrix import VARIANTS

METHODS = ROOT / "config/methods.yaml"
TABLES = ("curve", "ranks")
Key = tuple[str, str, int]
"""Method, protocol and seed of a run."""


def record(out: Path, data: Path | None) -> None:
    """Train everything into `out`, and note the hashes of the splits below `data`."""
    torch.set_num_threads(1)
    demo = prepared(out / "data")
    names = [*method_names(), *compositions(load_methods(METHODS)), *VARIANTS]
    for number, name in enumerate(names):
        for protocol in ("published", "clean"):
            train(
                data=demo, method=name, paper=None, protocol=protocol, seed=0,
                out=out / protocol / f"{number:03d}", changes=["rounds=3"], device="cpu",
                methods_file=METHODS, memory_gib=4.0,
            )  # fmt: skip
    if data is not None:
        (out / "splits.json").write_text(json.dumps(split_hashes(data), indent=2) + "\n")


def prepared(folder: Path) -> Path:
    """The synthetic dataset and the splits of every protocol, made by the command line."""
    catalogue, protocols = ROOT / "config/datasets.yaml", ROOT / "config/protocols.yaml"
    demo = folder / "demo"
    steps = [["prepare", "demo", "--catalogue", catalogue, "--raw", folder / "raw", "--out", demo]]
    papers = {entry["paper"] for entry in load_methods(METHODS).values()}
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
    comparing = commands.add_parser("compare")
    comparing.add_argument("before", type=Path)
    comparing.add_argument("after", type=Path)
    parsed = parser.parse_args()
    if parsed.command == "record":
        record(parsed.out, parsed.data)
        return
    differences = compare(parsed.before, parsed.after)
    print("\n".join(differences) or "no difference")
    sys.exit(bool(differences))


if __name__ == "__main__":
    main()
