"""Commands that make data: fetch, prepare, split, describe."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_catalogue, add_command, add_mirror, add_raw, configured
from fedrec.errors import SourceError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "fetch", _fetch)
    parser.add_argument("what", help="a dataset, or the path of one raw file in the catalogue")
    add_catalogue(parser)
    add_raw(parser)
    add_mirror(parser)

    parser = add_command(commands, "prepare", _prepare)
    parser.add_argument("dataset")
    add_catalogue(parser)
    add_raw(parser)
    parser.add_argument("--out", type=Path, required=True, help="folder for interactions, users and items")

    parser = add_command(commands, "split", _split)
    parser.add_argument("--data", type=Path, required=True, help="the prepared dataset's folder")
    parser.add_argument("--protocol", required=True, help="clean, published-<paper>, or one of your own")
    parser.add_argument(
        "--protocols",
        type=Path,
        default=configured("FEDREC_PROTOCOLS", "config/protocols.yaml"),
        help="default: %(default)s",
    )

    parser = add_command(commands, "describe", _describe)
    parser.add_argument("--data", type=Path, required=True, help="the prepared dataset's folder")
    parser.add_argument("--protocol", nargs="*", default=[], help="protocols whose splits to describe")
    parser.add_argument("--out", type=Path, required=True, help="json file to write")


def _fetch(parsed: argparse.Namespace) -> None:
    """Fetch raw files."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.data.fetch import fetch

    catalogue = load_catalogue(parsed.catalogue)
    if parsed.what in catalogue.raw_files():
        fetch(catalogue.raw_file(parsed.what), parsed.raw / parsed.what, parsed.mirror)
        return
    dataset = catalogue[parsed.what]
    for file in dataset.files():
        if Path(file.written).is_file():
            print(f"{file.written}: read where it lies", file=sys.stderr)
            continue
        try:
            fetch(file, parsed.raw / file.path, parsed.mirror)
        except SourceError as error:
            if file not in dataset.optional_files():
                raise
            print(f"{dataset.name} will do without {error}", file=sys.stderr)


def _prepare(parsed: argparse.Namespace) -> None:
    """Parse and filter a dataset."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.data.prepare import prepare, write_prepared

    dataset = load_catalogue(parsed.catalogue)[parsed.dataset]
    write_prepared(prepare(dataset, parsed.raw), dataset, parsed.raw, parsed.out)


def _split(parsed: argparse.Namespace) -> None:
    """Split a prepared dataset by a protocol."""
    from fedrec.config.protocol_file import load_protocols, protocol_named
    from fedrec.data.interactions import read_interactions_file
    from fedrec.data.split import make_split, write_split

    protocol = protocol_named(load_protocols(parsed.protocols), parsed.protocol)
    split = make_split(read_interactions_file(parsed.data / "interactions.parquet"), protocol)
    if len(split.dropped):
        print(
            f"{split.dataset}, {protocol.name}: {len(split.dropped)} users have too few rows, or unseen "
            "items, to be split and take no part; they are listed in the metadata of split.parquet.",
            file=sys.stderr,
        )
    write_split(split, parsed.data / protocol.name)


def _describe(parsed: argparse.Namespace) -> None:
    """Statistics of a dataset and its splits."""
    from fedrec.data.interactions import read_interactions_file
    from fedrec.data.split import read_split
    from fedrec.data.statistics import describe_interactions, describe_split
    from fedrec.files.atomic import write_text

    described = describe_interactions(read_interactions_file(parsed.data / "interactions.parquet"))
    described["splits"] = {name: describe_split(read_split(parsed.data / name)) for name in parsed.protocol}
    write_text(parsed.out, json.dumps(described, indent=2) + "\n")
