"""`fedrec new`: write a working method, or the entry of a dataset, as a starting point."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import COMMAND, add_catalogue, add_command, add_method_file

if TYPE_CHECKING:
    import polars as pl

    from fedrec.cli.options import Commands

_WORKFLOW = Path("Snakefile")


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "new", _new, "new method my-method")
    kinds = parser.add_subparsers(required=True, metavar=COMMAND)
    parser = add_command(kinds, "method", _method, "new method my-method")
    parser.add_argument("name", metavar="NAME", help="lower-case letters, digits and hyphens: my-method")
    add_method_file(parser)

    parser = add_command(kinds, "dataset", _dataset, "new dataset my-data ratings.csv")
    parser.add_argument("name", metavar="NAME", help="lower-case letters, digits and hyphens: my-data")
    parser.add_argument(
        "file",
        type=Path,
        nargs="?",
        metavar="FILE",
        help="a text table with one interaction per line, also compressed by gzip, or a parquet file "
        "(default: NAME.csv, which you add later)",
    )
    add_catalogue(parser)


def _new(_parsed: argparse.Namespace) -> None:
    """Add a method or a dataset of your own."""


def _method(parsed: argparse.Namespace) -> None:
    """Write the file of a working method and its settings, with comments on what to change."""
    from fedrec.config.default_files import file_or_default
    from fedrec.config.scaffold import new_method

    name: str = parsed.name
    file = new_method(name, parsed.methods)
    print(
        f"Wrote {file}\nand the entry {name} in {file_or_default(parsed.methods)}\n\nThe method works: it is "
        f"matrix factorisation until you change it. Next, type:\n{_split_commands('demo')}"
        f"    fedrec train --data results/data/demo --method {name} --protocol clean --out my-run "
        "--set rounds=20\n"
        f"    python -m pytest -q tests/contract -k {name}\n"
        "The last command needs the packages that `make check` installs. "
        f"Add {name} to `methods` in config/config.yaml to see it in tables, figures and the page. "
        "docs/add-a-method.md explains what you can change."
    )


def _dataset(parsed: argparse.Namespace) -> None:
    """Inspect a file of interactions and write its entry in the catalogue; print what was guessed."""
    from fedrec.config.catalogue import TableFormat
    from fedrec.config.scaffold import new_dataset
    from fedrec.data.guess import guess_format
    from fedrec.data.parse import read_interactions

    name: str = parsed.name
    new_file = (
        ""
        if parsed.catalogue.exists()
        else ". This file is new: a copy of fedrec's catalogue with your entry"
    )
    written = f"Wrote the entry {name} in {parsed.catalogue}{new_file}"
    if parsed.file is None:
        usual = TableFormat(",", {"user": "user", "item": "item", "time": "time"}, header=True)
        new_dataset(name, parsed.catalogue, Path(f"{name}.csv"), usual)
        print(
            f"{written}\n\nThe entry expects {name}.csv in this folder, with the columns user, item and "
            "time. Put the file here, or edit the entry. Next, type:"
        )
    else:
        guess = guess_format(parsed.file)
        table = read_interactions(parsed.file, guess.format)
        new_dataset(name, parsed.catalogue, parsed.file, guess.format, guess.remarks)
        read = ", ".join(f"{key} from {column!r}" for key, column in guess.format.columns.items())
        if "time" in guess.format.columns:
            read += f" ({guess.format.time})"
        print(
            f"{written}\n\nfedrec reads {len(table):,} rows of {table['user'].n_unique():,} users and "
            f"{table['item'].n_unique():,} items: {read}. Check that this is right."
        )
        for notice in (*guess.remarks, *_rows_left_out(table["rating"])):
            print(f"Note: {notice}.")
        print("Next, type:")
    print(
        f"{_split_commands(name)}"
        f"    fedrec train --data results/data/{name} --method fedmf --protocol clean --out runs/{name} "
        "--set rounds=20"
    )
    if _WORKFLOW.is_file():
        print(
            f"    snakemake --cores 2 {name}_comparison\n"
            f"Add {name} to `datasets` in config/config.yaml to see it in tables, figures and the page."
        )


def _split_commands(name: str) -> str:
    """The commands that make the clean split of a dataset: by Snakemake where this folder has a Snakefile."""
    folder = f"results/data/{name}"
    if _WORKFLOW.is_file():
        return f"    snakemake --cores 2 {folder}/clean/split.parquet\n"
    return f"    fedrec prepare {name} --out {folder}\n    fedrec split --data {folder} --protocol clean\n"


def _rows_left_out(ratings: "pl.Series") -> list[str]:
    """A remark on rows that no protocol uses, if there are any."""
    left_out = int((ratings <= 0).sum())
    if not left_out:
        return []
    return [
        f"rows rated 0 or less are left out: {left_out:,} of {len(ratings):,}. To keep them, remove rating "
        "from this entry's columns"
    ]
