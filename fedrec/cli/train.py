"""`fedrec train`: one run, on any machine that has torch."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_methods, configured

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "train", _train)
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
    parser.add_argument("--paper", help="the paper whose settings to follow (default: the method's own)")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    parser.add_argument("--out", type=Path, required=True, help="folder for the results")
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a setting, for example d=32 or layers=32x16x8",
    )
    parser.add_argument("--engine", default="auto", help="by name; loop is the oracle (default: %(default)s)")
    parser.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: %(default)s"
    )
    add_methods(parser)
    parser.add_argument(
        "--memory", type=float, help="GiB for clients in training (default: half of what is free)"
    )
    parser.add_argument(
        "--record",
        action="append",
        default=[],
        metavar="WHAT[=USER,USER]",
        help="record more than the final state: vectors, uploads, traffic or weights of some users (numbers "
        "in the dataset), or abundance",
    )
    parser.add_argument("--checkpoint-seconds", type=float, default=30.0, help="default: %(default)s")


def _train(parsed: argparse.Namespace) -> None:
    """Train a method on a split."""
    from fedrec.runs.train import train

    if parsed.paper is not None:
        _check_paper(parsed.paper, parsed.methods)
    train(
        data=parsed.data,
        method=parsed.method,
        paper=parsed.paper,
        protocol=parsed.protocol,
        seed=parsed.seed,
        out=parsed.out,
        changes=parsed.set,
        engine=parsed.engine,
        device=parsed.device,
        methods_file=parsed.methods,
        memory_gib=parsed.memory,
        checkpoint_seconds=parsed.checkpoint_seconds,
        record=parsed.record,
    )


def _check_paper(paper: str, methods: Path) -> None:
    """Raise `ConfigurationError` unless settings, protocols or the folder of papers know a paper.

    Schemas are not asked: training runs where nothing checks them.
    """
    from fedrec.config.methods import load_methods
    from fedrec.config.protocol import paper_of
    from fedrec.config.yaml_text import values_of
    from fedrec.errors import ConfigurationError, did_you_mean
    from fedrec.plan.runs import papers_in

    protocols = configured("FEDREC_PROTOCOLS", str(methods.parent / "protocols.yaml"))
    names = values_of(protocols.read_text(encoding="utf-8")) if protocols.is_file() else {}
    declared = (path.stem for path in sorted((methods.parent / "papers").glob("*.yaml")))
    of_protocols = (whose for name in names if (whose := paper_of(name)))
    known = list(dict.fromkeys((*papers_in(load_methods(methods)), *declared, *of_protocols)))
    if paper not in known:
        raise ConfigurationError(
            f"--paper: unknown paper '{paper}'.{did_you_mean(paper, known)} Known: {', '.join(known)}."
        )
