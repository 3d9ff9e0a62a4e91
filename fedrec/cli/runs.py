"""`fedrec runs`: list the runs behind a table, a figure or one row of it, with their paths."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_project, add_store, project_of
from fedrec.config.reference import BUILT_REFERENCE
from fedrec.errors import ConfigurationError, FedrecError, ResultError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "runs", _runs, "runs verdicts 3")
    parser.add_argument("target", metavar="TARGET", help="a table, figure or search, for example verdicts")
    parser.add_argument(
        "row",
        nargs="*",
        metavar="ROW",
        help="a row number of its csv, or words in the row's cells (default: all rows)",
    )
    add_store(parser)
    add_project(parser)


def _runs(parsed: argparse.Namespace) -> None:
    """List the runs behind a table, a figure or one row of it, each with its path."""
    from fedrec.config.configuration import read_configuration
    from fedrec.reporting.table_runs import (
        find_csv,
        find_row,
        locate_runs,
        read_rows,
        row_label,
        runs_by_column,
    )

    content = read_configuration([parsed.project, *parsed.configfile]).content
    results = Path(str(content.get("results", "results")))
    csv = find_csv(parsed.target, (results, BUILT_REFERENCE, parsed.store))
    if csv is None:
        raise _no_csv(parsed)
    root, path = csv
    store = None if root == results else parsed.store
    rows = read_rows(path)
    chosen = [find_row(rows, parsed.row)] if parsed.row else rows
    print(f"{path}, " + (f"row {row_label(chosen[0])}" if parsed.row else f"{len(rows)} rows"))
    columns = runs_by_column(chosen)
    if not columns:
        print("No run is named here.")
    for column, names in columns.items():
        print(f"{column}:")
        for run in locate_runs(names, root, store):
            print(f"  {run.where:<9}  {run.path}")


def _no_csv(parsed: argparse.Namespace) -> FedrecError:
    """The error for a target that is unknown or not built."""
    project = project_of(parsed)
    if parsed.target not in project.targets.names:
        return ConfigurationError(project.no_target(parsed.target))
    return ResultError(
        f"{parsed.target}: is not built here. Build it with: fedrec reference build {parsed.target}, or: "
        f"snakemake --cores 2 {parsed.target}"
    )
