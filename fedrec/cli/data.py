"""`fedrec fetch`, `prepare`, `split` and `describe`: from raw files to splits and statistics."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_catalogue, add_command, add_mirror, add_raw
from fedrec.config.default_paths import default_protocol_file
from fedrec.errors import SourceError, SplitError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "fetch", _fetch, "fetch ml-100k")
    parser.add_argument(
        "what", metavar="DATASET", help="a dataset of the catalogue, or the path of one of its raw files"
    )
    add_catalogue(parser)
    add_raw(parser)
    add_mirror(parser)

    parser = add_command(commands, "prepare", _prepare, "prepare ml-100k --out results/data/ml-100k")
    parser.add_argument("dataset", metavar="DATASET", help="a dataset of the catalogue")
    add_catalogue(parser)
    add_raw(parser)
    parser.add_argument(
        "--out", type=Path, required=True, metavar="FOLDER", help="the folder to write tables to"
    )

    parser = add_command(commands, "split", _split, "split --data results/data/demo --protocol clean")
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the prepared dataset's folder"
    )
    parser.add_argument(
        "--protocol", required=True, help="clean, neutral, temporal, published-PAPER, or your own"
    )
    parser.add_argument(
        "--protocols",
        type=Path,
        default=default_protocol_file(),
        metavar="FILE",
        help="the definitions of protocols (default: %(default)s)",
    )

    parser = add_command(
        commands, "describe", _describe, "describe --data results/data/demo --protocol clean --out demo.json"
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the prepared dataset's folder"
    )
    parser.add_argument(
        "--protocol", nargs="*", default=[], help="protocols whose splits to describe as well"
    )
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the json file to write")


def _fetch(parsed: argparse.Namespace) -> None:
    """Download the raw files of a dataset and check their checksums."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.data.fetch import fetch

    catalogue = load_catalogue(parsed.catalogue)
    if parsed.what in catalogue.raw_files():
        fetch(catalogue.raw_file(parsed.what), parsed.raw / parsed.what, parsed.mirror)
        return
    dataset = catalogue[parsed.what]
    for file in dataset.files():
        if Path(file.written).is_file():
            print(f"{file.written}: local file, used in place.", file=sys.stderr)
            continue
        try:
            fetch(file, parsed.raw / file.path, parsed.mirror)
        except SourceError as error:
            if file not in dataset.optional_files():
                raise
            print(f"{dataset.name}: skipped an optional file. {error}", file=sys.stderr)


def _prepare(parsed: argparse.Namespace) -> None:
    """Parse and filter a dataset: write tables of interactions, users and items."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.data.prepare import prepare, write_prepared

    dataset = load_catalogue(parsed.catalogue)[parsed.dataset]
    write_prepared(prepare(dataset, parsed.raw), dataset, parsed.raw, parsed.out)


def _split(parsed: argparse.Namespace) -> None:
    """Split a prepared dataset by a protocol: draw held-out items and candidates."""
    from fedrec.config.protocol_file import load_protocols, protocol_named
    from fedrec.data.frames import dropped_notes
    from fedrec.data.interactions import read_interactions_file
    from fedrec.data.split import write_split
    from fedrec.data.temporal import split_by

    protocol = protocol_named(load_protocols(parsed.protocols), parsed.protocol)
    split = split_by(read_interactions_file(parsed.data / "interactions.parquet"), protocol)
    for note in dropped_notes(split):
        print(note, file=sys.stderr)
    write_split(split, parsed.data / protocol.name)


def _describe(parsed: argparse.Namespace) -> None:
    """Write statistics of a dataset and its splits."""
    from fedrec.data.interactions import read_interactions_file
    from fedrec.data.split import how_to_split
    from fedrec.data.statistics import describe_interactions, describe_split
    from fedrec.data.temporal import interactions_split_by, split_in
    from fedrec.files.checked_json import write_checked_json

    interactions = read_interactions_file(parsed.data / "interactions.parquet")
    described = describe_interactions(interactions)
    splits = {name: split_in(parsed.data / name) for name in parsed.protocol}
    for name, split in splits.items():
        if split.interactions != interactions_split_by(interactions, split.protocol).content_hash():
            raise SplitError(
                f"{parsed.data / name}: this split belongs to other interactions than those in "
                f"{parsed.data}. Make it again: {how_to_split(parsed.data / name)}"
            )
    described["splits"] = {name: describe_split(split) for name, split in splits.items()}
    write_checked_json(parsed.out, described)
