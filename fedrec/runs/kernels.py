"""The kernels that the fused engine compiles for a method, as text, or the reason why it compiles none."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from fedrec.central.compiled import RowModel
from fedrec.config.methods import Methods, resolve, with_settings
from fedrec.config.names import parse_changes
from fedrec.errors import ConfigurationError
from fedrec.federation.engines.fused.compiling import code_of
from fedrec.federation.engines.fused.device import CPU, H200, Device, lanes_for
from fedrec.federation.engines.fused.ir.nodes import UnsupportedError
from fedrec.federation.engines.fused.listings import pass_listings
from fedrec.federation.engines.fused.trace.symbolic_inputs import Model
from fedrec.federation.model.client import Fit, Program, Step
from fedrec.federation.program import trace, trace_after_aggregation
from fedrec.runs.method_kinds import ITEMS, USERS
from fedrec.runs.registry import make_central, make_method

_OPTIMISERS = {"adam": "Adam", "sgd": "SGD"}


@dataclass(frozen=True)
class KernelTarget:
    """The target of kernels: GPU or CPU, the precision of numbers, the size of mini-batches."""

    gpu: bool
    double: bool
    batch: int

    @property
    def device(self) -> Device:
        """The device, with the sizes by which the compiler decides."""
        return H200 if self.gpu else CPU

    def __str__(self) -> str:
        language = f"CUDA C, {lanes_for(self.batch)} lanes a client" if self.gpu else "C, one thread a client"
        return f"{language}, in {'double' if self.double else 'single'} precision"


def kernels_text(
    methods: Methods,
    name: str,
    paper: str | None,
    changes: Sequence[str],
    *,
    round_: int,
    gpu: bool,
    double: bool,
    passes: bool = False,
) -> str:
    """The text of the kernels of all fits in a method's round, each below a comment that describes it.

    With `passes`, the text has the graph of every step after every pass of the compiler instead of kernels.
    A fit without a kernel has the comment alone, with the reason. Nothing is compiled or run, so GPU kernels
    can be printed on any machine.
    """
    if round_ < 1:
        raise ConfigurationError(f"--round {round_}: rounds count from 1. Give 1 or more.")
    composition, files = with_settings(methods, name, parse_changes(changes))
    settings, _, paper = resolve(methods, composition, paper, "any", files)
    method, parts = _programs(composition, settings, round_)
    target = KernelTarget(gpu, double, settings["batch_size"])
    with _precision(double):
        texts = [
            f"/* {composition}, settings of {paper}, round {round_}, {part}: {text}"
            for part, program in parts.items()
            for text in _of_program(method, program, target, passes)
        ]
    if not texts:
        raise ConfigurationError(
            f"{composition} trains nothing by gradients in round {round_}. Give another --round."
        )
    return "\n\n".join(texts) + "\n"


def _programs(name: str, settings: Mapping[str, Any], round_: int) -> tuple[Model, dict[str, Program]]:
    """A method, and its programs of gradient steps by the part of the round."""
    method = make_method(name, settings, ITEMS)
    if method is not None:
        local, after = trace(method, round_), trace_after_aggregation(method, round_)[0]
        return method, {"the local round": local, "after aggregation": after}
    central = make_central(name, settings, USERS, ITEMS)
    if isinstance(central, RowModel):
        return central, {"an epoch of all users": (central.epoch(),)}
    raise ConfigurationError(f"{name} has no compiled gradient steps, so there is nothing to show.")


def _of_program(method: Model, program: Program, target: KernelTarget, passes: bool) -> Iterator[str]:
    """Yield for every fit the rest of its heading, and its kernel."""
    fits = [operation for operation in program if isinstance(operation, Fit)]
    for number, fit in enumerate(fits, start=1):
        heading = f"fit {number} of {len(fits)}.\n   {_described(fit, target.batch)}"
        try:
            text = _listings(method, fit, target) if passes else _program_text(method, fit, target)
        except UnsupportedError as error:
            yield f"{heading}\n   Not compiled, so the batched engine trains it: {error}. */"
            continue
        yield f"{heading}\n   {target}. */\n{text.strip()}"


def _program_text(method: Model, fit: Fit, target: KernelTarget) -> str:
    source = code_of(method, fit, target=target.device, batch=target.batch).source
    return source.for_gpu(lanes_for(target.batch)) if target.gpu else source.for_cpu()


def _listings(method: Model, fit: Fit, target: KernelTarget) -> str:
    return "\n".join(pass_listings(method, fit, target=target.device, batch=target.batch))


def _described(fit: Fit, batch: int) -> str:
    steps = "; then ".join(map(_step, fit.steps))
    which = f"the {fit.samples} half of its samples" if fit.samples else "its samples"
    stop = f", stops below a change of {fit.early_stop:g}" if fit.early_stop is not None else ""
    epochs = "1 epoch" if fit.epochs == 1 else f"{fit.epochs} epochs"
    return f"Trains {steps}: {epochs} over {which}, mini-batches of {batch}{stop}."


def _step(step: Step) -> str:
    decayed = [name for name, decay in step.weight_decay.items() if decay]
    facts = [
        _OPTIMISERS[step.optimiser],
        *([f"weight decay on {', '.join(decayed)}"] if decayed else []),
        *(["shrinking rates"] if step.batch_decay != 1 else []),
        *(["moments kept over rounds"] if step.keep_state else []),
    ]
    return f"{', '.join(step.rates)} by {', '.join(facts)}"


@contextmanager
def _precision(double: bool) -> Iterator[None]:
    """Set torch's default precision while kernels are generated."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64 if double else torch.float32)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
