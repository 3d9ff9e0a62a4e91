"""`fedrec tune`: search settings of a method, on any dataset."""

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import fedrec
from fedrec.cli.options import add_command, add_where, check_out
from fedrec.errors import ConfigurationError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.config.custom_search import RangeOrChoices

_FORM = "write NAME=log:LOWEST:HIGHEST, NAME=linear:LOWEST:HIGHEST or NAME=VALUE,VALUE"


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(
        commands, "tune", _tune,
        "tune --data results/data/demo --method fedmf --trials 8 --range rate=log:0.001:0.3 --range d=16,32",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the dataset's folder, with its splits"
    )
    parser.add_argument(
        "--method", required=True, help="a method; settings in its name hold for all trials: fedmf[rounds=50]"
    )
    parser.add_argument("--protocol", default="clean", help="the split to use (default: %(default)s)")
    parser.add_argument(
        "--range",
        action="append",
        default=[],
        metavar="NAME=RANGE",
        help="the values of a setting: rate=log:0.001:1, pull=linear:0:1 or d=16,32; may be repeated "
        "(default: the method's ranges in config/tuning.yaml)",
    )
    parser.add_argument(
        "--trials", type=int, default=16, metavar="N", help="number of trials (default: %(default)s)"
    )
    parser.add_argument(
        "--seeds", type=int, default=3, metavar="N", help="seeds of the best trials (default: %(default)s)"
    )
    parser.add_argument(
        "--allow-leak",
        action="store_true",
        help="allow a protocol that leaks held-out items (see docs/protocols.md)",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write all trials to this csv file")
    add_where(parser)


def _tune(parsed: argparse.Namespace) -> None:
    """Search settings of a method by exact NDCG@10 on validation."""
    # Before torch is imported: threads that wait busily slow each other down where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from fedrec.files.atomic import write_text

    check_out(parsed.out)
    result = fedrec.tune(
        parsed.data,
        parsed.method,
        protocol=parsed.protocol,
        ranges=_ranges(parsed.range),
        trials=parsed.trials,
        seeds=parsed.seeds,
        leaking=parsed.allow_leak,
        device=parsed.device,
        engine=parsed.engine,
    )
    print(f"Best: {result.best}, exact NDCG@10 {result.validation:.4f} on validation. Next, type:")
    options = f"--data {parsed.data} --protocol {parsed.protocol}"
    print(f"    fedrec compare '{result.best}' '{parsed.method}' {options}")
    if parsed.out is not None:
        import polars as pl

        write_text(parsed.out, result.trials.with_columns(pl.col("folders").list.join(" ")).write_csv())
        print(f"Wrote {parsed.out}")


def _ranges(words: Sequence[str]) -> "dict[str, RangeOrChoices] | None":
    """The ranges by setting; None without any."""
    ranges: dict[str, RangeOrChoices] = {}
    for word in words:
        name, equals, text = word.partition("=")
        if not name or not equals or not text:
            raise ConfigurationError(f"--range {word}: not a range; {_FORM}.")
        if name in ranges:
            raise ConfigurationError(f"--range {word}: {name} is given twice. Give each setting once.")
        kind, colon, bounds = text.partition(":")
        ranges[name] = {kind: bounds.split(":")} if colon else text.split(",")
    return ranges or None
