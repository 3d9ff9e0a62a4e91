"""`fedrec new`: a method or a dataset of one's own, which works as it is written."""

import argparse
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_methods

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = commands.add_parser("new", help=_new.__doc__, description=_new.__doc__)
    kinds = parser.add_subparsers(required=True, metavar="WHAT")
    parser = add_command(kinds, "method", _method)
    parser.add_argument("name", help="small letters, digits and hyphens: my-method")
    add_methods(parser)


def _new() -> None:
    """Start a method or a dataset of your own."""


def _method(parsed: argparse.Namespace) -> None:
    """Write a method that trains as it is, and its settings; both say what to change."""
    from fedrec.config.new import new_method

    name: str = parsed.name
    file = new_method(name, parsed.methods)
    print(
        f"{file}\n{parsed.methods}, {name}\n\nIt trains as it is, as matrix factorisation. Next:\n"
        "    snakemake --cores 2 results/data/demo/clean/split.parquet\n"
        f"    fedrec train --data results/data/demo --method {name} --protocol clean --out my-run "
        "--set rounds=20\n"
        f"    python -m pytest -q tests/contract -k {name}\n"
        "Named in `methods` of config/config.yaml it joins tables, figures and the page. "
        "docs/add-a-method.md tells what can be changed."
    )
