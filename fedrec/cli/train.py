"""`fedrec train`: one run, on any machine that has torch."""

import argparse
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.cli.options import (
    add_command,
    add_methods,
    add_strict,
    add_where,
    add_without_model,
    check_paper,
    methods_of,
)
from fedrec.errors import ConfigurationError

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.plan.train_request import TrainRequest

_DIVERGED_VARIABLE = "FEDREC_DIVERGED"
_RULES = {
    "best_validation": "the best on validation",
    "best_test": "the best on test itself, as this protocol has it",
    "last": "the last",
}
"""By what rule a round is the reported one."""


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(
        commands, "train", _train,
        "train --data results/data/demo --method fedmf --protocol clean --set d=32 --out my-run",
    )  # fmt: skip
    parser.add_argument("--data", type=Path, required=True, help="the dataset's folder, with its splits")
    parser.add_argument(
        "--method",
        required=True,
        help="a method of config/methods.yaml; with a plug-in and settings changed: fedmf+plgc[beta=0.3]",
    )
    parser.add_argument(
        "--protocol",
        required=True,
        help="published (the paper's own), clean, a step between (only-pool, upto-lists), or one of your own",
    )
    parser.add_argument(
        "--also",
        action="append",
        default=[],
        metavar="PROTOCOL=FOLDER",
        help="train the same under another protocol, too, with its results in a folder of its own; protocols "
        "that differ in how they evaluate alone, such as only-lists and only-ties, are trained once",
    )
    parser.add_argument("--paper", help="the paper whose settings to follow (default: the method's own)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--set",
        action="extend",
        nargs="+",
        default=[],
        metavar="NAME=VALUE",
        help="change settings, for example d=32 or layers=32x16x8; they become part of the method's name, as "
        "in fedmf[d=32]",
    )
    add_where(parser)
    add_methods(parser)
    parser.add_argument(
        "--memory",
        type=float,
        metavar="GIB",
        help="for clients that train at once (default: 2 on a CPU, an eighth of a GPU's)",
    )
    parser.add_argument(
        "--record",
        action="append",
        default=[],
        metavar="WHAT[=USER,USER]",
        help="record more than the final state: vectors, uploads, traffic or weights of some users (numbers "
        "in the dataset), or abundance",
    )
    parser.add_argument(
        "--checkpoint-seconds", type=float, default=30.0, help="between checkpoints (default: %(default)s)"
    )
    parser.add_argument(
        "--diverged",
        # Through the environment it is no parameter of a job of the workflow: see `RunJob.arguments`.
        default=os.environ.get(_DIVERGED_VARIABLE) or "refused",
        help="refused: a training that leaves the finite numbers is an error; kept: it is a result, ranking "
        "every held-out item last from that round on (default: %(default)s)",
    )
    add_without_model(parser)
    add_strict(parser)
    parser.add_argument("--force", action="store_true", help="replace a finished run in the folder")
    parser.add_argument("--replace", action="store_true", help="the same, but keep it if it is this very run")


def _train(parsed: argparse.Namespace) -> None:
    """Train a method on a split."""
    # Before torch is imported: threads that wait busily slow each other down where cores are shared.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    also = _also(parsed.also)
    if also and os.environ.get("WORLD_SIZE", "1") != "1":
        raise ConfigurationError("--also: does not go with several processes. Train such runs one by one.")
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
    from fedrec.plan.train_request import TrainRequest

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
        diverged=parsed.diverged,
        record=tuple(parsed.record),
        out=parsed.out,
        also=also,
        with_model=not parsed.without_model,
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
            raise ConfigurationError(f"--also {word}: write PROTOCOL=FOLDER, for example only-ties=my-run-2.")
        if protocol in folders:
            raise ConfigurationError(
                f"--also {word}: {protocol} has a folder already. Give each protocol once."
            )
        folders[protocol] = Path(folder)
    return folders


def _outcome(summary: Mapping[str, Any], out: Path) -> str:
    """What a finished run reached, at which round by which rule, and where it lies."""
    from fedrec.plan.runs import DIVERGED

    protocol, rounds = summary["protocol"], summary["rounds"]
    rule = protocol["round_rule"]
    test = summary["metrics"][rule]["test"]
    run = f"{summary['method']} on {summary['dataset']}, {protocol['name']}, seed {summary['seed']}"
    if DIVERGED in summary:
        return f"{run}: diverged in round {summary[DIVERGED]['round']}.\nWritten to {out}"
    return (
        f"{run}: test HR@10 {test['hr@10']:.4f}, NDCG@10 {test['ndcg@10']:.4f} at round {rounds[rule]} of "
        f"{rounds['last']}, {_RULES[rule]}.\nWritten to {out}"
    )
