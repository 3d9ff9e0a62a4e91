"""`fedrec kernel`: print the compiled kernels of a method."""

import argparse
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_methods, check_paper, methods_of

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "kernel", _kernel, "kernel fedmf --device cuda")
    parser.add_argument(
        "method", metavar="METHOD", help="as in `fedrec train`: fedmf, fedmf+plgc, fedmf[d=8]"
    )
    parser.add_argument("--paper", help="the paper whose settings to follow (default: the method's own)")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="change a setting, for example d=32"
    )
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), default="cpu", help="cpu: C, cuda: CUDA C (default: %(default)s)"
    )
    parser.add_argument(
        "--round",
        type=int,
        default=1,
        metavar="N",
        help="the round to show, as some methods train different parameters in different rounds (default: "
        "%(default)s)",
    )
    parser.add_argument(
        "--double", action="store_true", help="double precision, as in tests (default: single)"
    )
    parser.add_argument(
        "--passes",
        action="store_true",
        help="print, instead of kernels, the graph of each loss after every pass of the compiler, with the "
        "operator and line that each tensor comes from",
    )
    add_methods(parser)


def _kernel(parsed: argparse.Namespace) -> None:
    """Print the kernels that the fused engine compiles for a method, or why it compiles none."""
    from fedrec.runs.kernels import kernels_text

    if parsed.paper is not None:
        check_paper(parsed)
    text = kernels_text(
        methods_of(parsed),
        parsed.method,
        parsed.paper,
        parsed.set,
        round_=parsed.round,
        gpu=parsed.device == "cuda",
        double=parsed.double,
        passes=parsed.passes,
    )
    print(text, end="")
