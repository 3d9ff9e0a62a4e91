"""`fedrec train`: train one run, on any machine with torch."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.cli.options import (
    add_command,
    add_methods,
    add_no_model,
    add_strict,
    add_where,
    check_paper,
    methods_of,
)
from fedrec.errors import ConfigurationError
from fedrec.plan.runs import MODELS, NEVER, SMALL

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.plan.train_request import TrainRequest

_DIVERGED_VARIABLE = "FEDREC_DIVERGED"
_RULES = {
    "best_validation": "the best on validation",
    "best_test": "the best on test, as this protocol selects it",
    "last": "the last",
}
"""The rules that select the reported round, as text."""


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(
        commands, "train", _train,
        "train --data results/data/demo --method fedmf --protocol clean --set d=32 --out my-run",
    )  # fmt: skip
    parser.add_argument(
        "--data", type=Path, required=True, metavar="FOLDER", help="the dataset's folder, with its splits"
    )
    parser.add_argument(
        "--method",
        required=True,
        help="a method of config/methods.yaml, with plug-in and changed settings: fedmf+plgc[beta=0.3]",
    )
    parser.add_argument(
        "--protocol",
        required=True,
        help="clean, neutral, temporal, published (the paper's own), a step between published and clean "
        "(only-pool, upto-lists), or your own",
    )
    parser.add_argument(
        "--also-protocol",
        action="append",
        default=[],
        metavar="PROTOCOL=FOLDER",
        help="train the same run under another protocol, and write it to FOLDER; may be repeated. Protocols "
        "that differ only in evaluation, such as only-lists and only-ties, share one training",
    )
    parser.add_argument("--paper", help="the paper whose settings to follow (default: the method's own)")
    parser.add_argument("--seed", type=int, default=0, help="the random seed (default: %(default)s)")
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="the folder to write")
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="change settings: d=32 layers=32x16x8. They become part of the method's name: fedmf[d=32]",
    )
    add_where(parser)
    add_methods(parser)
    parser.add_argument(
        "--memory",
        type=float,
        metavar="GIB",
        help="memory for clients that train at the same time (default: 2 on a CPU, an eighth of a GPU's "
        "memory)",
    )
    parser.add_argument(
        "--record",
        action="append",
        default=[],
        metavar="WHAT[=USER,USER]",
        help="record more than the final model: vectors, uploads or weights of users (numbers in the split); "
        "traffic, of all or some users; or abundance, of all users",
    )
    parser.add_argument(
        "--checkpoint-seconds",
        type=float,
        default=30.0,
        metavar="SECONDS",
        help="time between checkpoints (default: %(default)s)",
    )
    parser.add_argument(
        "--on-divergence",
        metavar="{record,fail}",
        # The workflow sets it by the environment, not as a parameter of jobs: see `RunJob.arguments`.
        default=os.environ.get(_DIVERGED_VARIABLE) or "fail",
        help="fail: stop with an error at the first NaN or infinity; record: keep the run as diverged, with "
        "every held-out item ranked last from that round on (default: fail)",
    )
    models = parser.add_mutually_exclusive_group()
    models.add_argument(
        "--model",
        default=SMALL,
        metavar="{" + ",".join(MODELS) + "}",
        help="which models to write: small (at most 100 MB), always (any size) or never. run.scores, audits "
        "and figures of models read them (default: %(default)s)",
    )
    add_no_model(models)
    add_strict(parser)
    parser.add_argument(
        "--force", action="store_true", help="train again even if FOLDER holds a finished run"
    )
    parser.add_argument(
        "--replace",
        action="store_true",
        help="train again only if FOLDER holds a different run, or a damaged one",
    )


def _train(parsed: argparse.Namespace) -> None:
    """Train one method on one split with one seed."""
    # Before torch is imported: threads that wait busily slow each other down where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    also = _also(parsed.also_protocol)
    if also and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigurationError(
            "--also-protocol does not work with several processes. Train these runs one by one."
        )
    from fedrec.runs.record import RunRecord
    from fedrec.runs.train import train

    if parsed.paper is not None:
        check_paper(parsed)
    summary = train(_request(parsed, also), methods_of(parsed))
    if os.environ.get("RANK", "0") == "0":
        print(_outcome(summary, parsed.out))
        for out in also.values():
            print(_outcome(RunRecord(out).summary, out))


def _request(parsed: argparse.Namespace, also: Mapping[str, Path]) -> "TrainRequest":
    from fedrec.plan.train_request import ON_DIVERGENCE, TrainRequest

    return TrainRequest(
        data=parsed.data,
        method=parsed.method,
        paper=parsed.paper,
        protocol=parsed.protocol,
        seed=parsed.seed,
        changes=tuple(parsed.set),
        engine=parsed.engine,
        device=parsed.device,
        memory_gib=parsed.memory,
        checkpoint_seconds=parsed.checkpoint_seconds,
        diverged=ON_DIVERGENCE.get(parsed.on_divergence, parsed.on_divergence),
        record=tuple(parsed.record),
        out=parsed.out,
        also=also,
        model=NEVER if parsed.no_model else parsed.model,
        force=parsed.force,
        replace=parsed.replace,
        strict=parsed.strict,
    )


def _also(words: list[str]) -> dict[str, Path]:
    """The folders of further runs, by their protocols."""
    folders: dict[str, Path] = {}
    for word in words:
        protocol, _, folder = word.partition("=")
        if not protocol or not folder:
            raise ConfigurationError(
                f"--also-protocol {word}: write PROTOCOL=FOLDER, for example only-ties=my-run-2."
            )
        if protocol in folders:
            raise ConfigurationError(
                f"--also-protocol {word}: {protocol} is given twice. Give each protocol once."
            )
        folders[protocol] = Path(folder)
    return folders


def _outcome(summary: Mapping[str, Any], out: Path) -> str:
    """The metrics of a finished run, their round and its rule, and the folder."""
    from fedrec.plan.runs import DIVERGED

    protocol, rounds = summary["protocol"], summary["rounds"]
    rule = protocol["round_rule"]
    test = summary["metrics"][rule]["test"]
    run = f"{summary['method']} on {summary['dataset']}, {protocol['name']}, seed {summary['seed']}"
    if DIVERGED in summary:
        return f"{run}: diverged in round {summary[DIVERGED]['round']}.\nWrote {out}"
    return (
        f"{run}: test HR@10 {test['hr@10']:.4f}, NDCG@10 {test['ndcg@10']:.4f} at round {rounds[rule]} of "
        f"{rounds['last']}, {_RULES[rule]}.\nWrote {out}"
    )
