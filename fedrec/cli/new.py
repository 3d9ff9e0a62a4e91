"""`fedrec new`: a method or a dataset of one's own, which works as it is written."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_catalogue, add_command, add_method_file

if TYPE_CHECKING:
    import polars as pl

    from fedrec.cli.options import Commands

_WORKFLOW = Path("Snakefile")


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = commands.add_parser("new", help=_new.__doc__, description=_new.__doc__)
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    parser = add_command(kinds, "method", _method)
    parser.add_argument("name", help="small letters, digits and hyphens: my-method")
    add_method_file(parser)

    parser = add_command(kinds, "dataset", _dataset)
    parser.add_argument("name", help="small letters, digits and hyphens: my-data")
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        help="a text table, one interaction per line (packed by gzip or not), or a parquet file (default: "
        "NAME.csv, to come)",
    )
    add_catalogue(parser)


def _new() -> None:
    """Start a method or a dataset of your own."""


def _method(parsed: argparse.Namespace) -> None:
    """Write a method that trains as it is, and its settings; both say what to change."""
    from fedrec.config.default_files import file_or_default
    from fedrec.config.scaffold import new_method

    name: str = parsed.name
    file = new_method(name, parsed.methods)
    print(
        f"{file}\n{file_or_default(parsed.methods)}, {name}\n\nIt trains as it is, as matrix factorisation. "
        f"Next:\n{_split_commands('demo')}"
        f"    fedrec train --data results/data/demo --method {name} --protocol clean --out my-run "
        "--set rounds=20\n"
        f"    python -m pytest -q tests/contract -k {name}\n"
        "The last one needs what `make check` installs. "
        "Named in `methods` of config/config.yaml it joins tables, figures and the page. "
        "docs/add-a-method.md tells what can be changed."
    )


def _dataset(parsed: argparse.Namespace) -> None:
    """Write the entry of a dataset, by a look into its file; it says what was guessed."""
    from fedrec.config.catalogue import TableFormat
    from fedrec.config.scaffold import new_dataset
    from fedrec.data.guess import guess_format
    from fedrec.data.parse import read_interactions

    name: str = parsed.name
    begins = "" if parsed.catalogue.exists() else ". The file is new, and begins with fedrec's own catalogue"
    place = f"{parsed.catalogue}, {name}{begins}"
    if parsed.file is None:
        usual = TableFormat(",", {"user": "user", "item": "item", "time": "time"}, header=True)
        new_dataset(name, parsed.catalogue, Path(f"{name}.csv"), usual)
        print(
            f"{place}\n\nIt reads {name}.csv in this folder, with the columns user, item and time: put that "
            "file here, or mend the entry. Next:"
        )
    else:
        guess = guess_format(parsed.file)
        table = read_interactions(parsed.file, guess.format)
        new_dataset(name, parsed.catalogue, parsed.file, guess.format, guess.remarks)
        read = ", ".join(f"{key} from {column!r}" for key, column in guess.format.columns.items())
        if "time" in guess.format.columns:
            read += f" ({guess.format.time})"
        print(
            f"{place}\n\n{len(table):,} rows of {table['user'].n_unique():,} users and "
            f"{table['item'].n_unique():,} items are read: {read}. See that this is right."
        )
        for notice in (*guess.remarks, *_rows_left_out(table["rating"])):
            print(f"Note: {notice}.")
        print("Next:")
    print(
        f"{_split_commands(name)}"
        f"    fedrec train --data results/data/{name} --method fedmf --protocol clean --out runs/{name} "
        "--set rounds=20"
    )
    if _WORKFLOW.is_file():
        print(
            f"    snakemake --cores 2 {name}_comparison\n"
            "Named in `datasets` of config/config.yaml it joins tables, figures and the page."
        )


def _split_commands(name: str) -> str:
    """Lines that make the clean split of a dataset: by Snakemake where its file is in this folder."""
    folder = f"results/data/{name}"
    if _WORKFLOW.is_file():
        return f"    snakemake --cores 2 {folder}/clean/split.parquet\n"
    return f"    fedrec prepare {name} --out {folder}\n    fedrec split --data {folder} --protocol clean\n"


def _rows_left_out(ratings: "pl.Series") -> list[str]:
    """What to say of rows that no protocol uses."""
    left_out = int((ratings <= 0).sum())
    if not left_out:
        return []
    return [
        f"rows rated 0 or less are left out: {left_out:,} of {len(ratings):,}. To keep them, take rating out "
        "of this entry's columns"
    ]
