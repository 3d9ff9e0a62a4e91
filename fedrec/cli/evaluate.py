"""`fedrec evaluate`: rank the scores of another system on a split, and compare them with runs."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fedrec
from fedrec.cli.options import add_command

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.runs.record import RunRecord

_REMARKS = (
    "fedrec did not train this system, so it cannot check its training data. Only the split's rows of part "
    "`train` may be used for training.",
    "fedrec does not know how you chose these scores. Scores chosen on test items give numbers that are too "
    "high; choose on validation items.",
)


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(
        commands,
        "evaluate",
        _evaluate,
        "evaluate --scores scores.csv --data results/data/demo --protocol clean --name my-system",
    )
    parser.add_argument(
        "--scores",
        type=Path,
        required=True,
        metavar="FILE",
        help=".parquet or .csv with the columns user, item and score; .npy with a row per user and a column "
        "per item, in the order of users.parquet and items.parquet",
    )
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the dataset's folder, with its splits"
    )
    parser.add_argument(
        "--protocol", required=True, help="clean, neutral, temporal, published-PAPER, or your own"
    )
    parser.add_argument("--name", required=True, help="the system's name in tables and folders")
    parser.add_argument(
        "--ids",
        default="original",
        help="the ids in the file: original, those of the dataset's raw file; fedrec, the numbers in the "
        "split (default: %(default)s)",
    )
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FOLDER",
        help="the folder to write to (default: results/evaluated/DATASET/PROTOCOL/NAME)",
    )
    parser.add_argument(
        "--note",
        default="",
        metavar="TEXT",
        help="a note for tables: the system's version, its settings, and how they were chosen",
    )
    parser.add_argument(
        "--against",
        type=Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="folders of finished runs on the same split, for a paired comparison over users",
    )


def _evaluate(parsed: argparse.Namespace) -> None:
    """Rank another system's scores on a split, and compare it with runs by paired tests."""
    from fedrec.audit.pairing import interval_rows, paired_rows

    others = [fedrec.open_run(folder, parsed.data) for folder in parsed.against]
    run = fedrec.evaluate(
        parsed.scores,
        parsed.data,
        parsed.protocol,
        name=parsed.name,
        out=parsed.out,
        ids=parsed.ids,
        note=parsed.note,
    )
    print(_metrics_text(run, interval_rows(run)))
    if others:
        print(_paired_text(paired_rows(run, others)))
    print("\n".join(_REMARKS))
    print(f"Wrote {run.folder}")


def _metrics_text(run: "RunRecord", rows: Sequence[dict[str, Any]]) -> str:
    from fedrec.runs.exact import metric_title

    users = len(run.user_ranks().user)
    lines = [f"{run.id.method} on {run.id.dataset}, {run.protocol}: test metrics of {users:,} users"]
    if not run.has_exact_ranks:
        lines.append("The file scores candidates only, so there are no exact metrics.")
    elif not run.exact_metrics:
        lines.append(
            "This protocol has no exact metrics, because its clients never sample candidates as negatives."
        )
    lines.append(f"{'metric':<16}{'value':>8}  95 % interval over users")
    lines += [
        f"{metric_title(row['metric']):<16}{row['value']:>8.4f}  [{row['low']:.4f}, {row['high']:.4f}]"
        for row in rows
    ]
    return "\n".join(lines) + "\n"


def _paired_text(rows: Sequence[dict[str, Any]]) -> str:
    from fedrec.runs.exact import metric_title

    names = [f"{row['against']}, seed {row['seed']}" for row in rows]
    width = max(map(len, [*names, "against"])) + 2
    heads = f"{'its value':>9}  {'difference [95 % interval]':<28}{'p':>8}{'p (Holm)':>10}"
    lines = [
        "Differences are paired over users and positive where this system is better. p is from a "
        "randomisation test, Holm-corrected over runs.",
        f"{'metric':<16}{'against':<{width}}{heads}",
    ]
    for row, name in zip(rows, names, strict=True):
        difference = f"{row['difference']:+.4f} [{row['low']:+.4f}, {row['high']:+.4f}]"
        lines.append(
            f"{metric_title(row['metric']):<16}{name:<{width}}{row['value_against']:>9.4f}  {difference:<28}"
            f"{row['randomisation']:>8.4f}{row['randomisation_holm']:>10.4f}"
        )
    return "\n".join(lines) + "\n"
