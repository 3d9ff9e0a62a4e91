"""`fedrec compare`: train methods on one split and compare them with paired tests."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.cli.options import add_command, add_where, check_out

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(
        commands,
        "compare",
        _compare,
        "compare fedmf popularity --data results/data/demo --seeds 3 --out table.csv",
    )
    parser.add_argument(
        "methods", nargs="+", metavar="METHOD", help="two or more methods: fedmf, fedmf+plgc, fedmf[d=64]"
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the dataset's folder, with its splits"
    )
    parser.add_argument("--protocol", default="clean", help="the split to use (default: %(default)s)")
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="seeds per method (default: %(default)s)"
    )
    parser.add_argument(
        "--out", type=Path, metavar="FILE", help="write the table to this csv file, with all digits"
    )
    add_where(parser)


def _compare(parsed: argparse.Namespace) -> None:
    """Train methods with several seeds and compare each with the best on validation; reuse finished runs."""
    # Before torch is imported: threads that wait busily slow each other down where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    import polars as pl

    from fedrec.audit.method_comparison import COMPARISON_COLUMNS, chosen_by, comparison_rows, few_seeds
    from fedrec.files.atomic import write_text
    from fedrec.runs.comparison_runs import compared_runs
    from fedrec.runs.exact import metric_title

    check_out(parsed.out)
    runs = compared_runs(
        parsed.data,
        parsed.methods,
        protocol=parsed.protocol,
        seeds=parsed.seeds,
        engine=parsed.engine,
        device=parsed.device,
    )
    rows = comparison_rows(runs)
    print(_table_text(rows))
    print(
        f"The first method has the best {metric_title(chosen_by(runs))} on validation. The others are "
        "compared with it user by user; p is from a randomisation test, Holm-corrected over methods."
    )
    if warning := few_seeds(runs):
        print(warning)
    if parsed.out is not None:
        write_text(parsed.out, pl.DataFrame(rows, schema=dict(COMPARISON_COLUMNS)).write_csv())
        print(f"Wrote {parsed.out}")


def _table_text(rows: Sequence[dict[str, Any]]) -> str:
    from fedrec.runs.exact import metric_title

    metrics = dict.fromkeys(row["metric"] for row in rows)
    width = max(len(text) for text in (*map(metric_title, metrics), *(row["method"] for row in rows))) + 2
    between = "95 % interval"
    heads = f"{'seeds':>5}{'validation':>12}{'value':>9}  {between:<18}"
    heads += f"{'difference':>11}  {between:<20}{'p (Holm)':>9}"
    lines = []
    for metric in metrics:
        of_metric = [row for row in rows if row["metric"] == metric]
        lines += [
            f"{metric_title(metric):<{width}}{heads}",
            *(_row_text(row, width) for row in of_metric),
            "",
        ]
    return "\n".join(lines)


def _row_text(row: dict[str, Any], width: int) -> str:
    text = f"{row['method']:<{width}}{row['seeds']:>5}"
    if row["value"] is not None:
        interval = _interval(row["low"], row["high"], ".4f")
        text += f"{row['validation']:>12.4f}{row['value']:>9.4f}  {interval:<18}"
    if row["difference"] is not None:
        interval = _interval(row["difference_low"], row["difference_high"], "+.4f")
        text += f"{row['difference']:>+11.4f}  {interval:<20}{row['randomisation_holm']:>9.4f}"
    return text.rstrip() + f"  {row['diverged']} diverged" * bool(row["diverged"])


def _interval(low: float, high: float, form: str) -> str:
    return f"[{low:{form}}, {high:{form}}]"
