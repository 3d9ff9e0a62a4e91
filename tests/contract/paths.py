"""Which paths through the engines a composition takes: read off its settings, its model, and what its clients are
asked to do, so that a new method needs to be named nowhere."""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fedrec.federation.model.client import Fit, Program, Rewrite, Step, TableRewrite, Upload
from fedrec.federation.model.method import Method
from fedrec.federation.model.parameters import initial_values
from fedrec.federation.model.plugin import Plugin
from fedrec.federation.model.server_rule import RenamedRule, ServerRule
from fedrec.federation.model.tables import PlainBatch, PlainTable, Values
from fedrec.federation.program import needs_of, shape_of, trace, trace_after_aggregation

ITEMS = 12
"""Of the model that is looked at: the least with which every method works."""
ROUNDS = (1, 3)
"""Whose programs are looked at: a method may begin otherwise than it goes on."""


class _Noting:
    """A table or a mini-batch that notes which of its sums a method asks for."""

    def __init__(self, of: Any, paths: set[str]) -> None:
        self._of, self._paths = of, paths

    def __getitem__(self, items: Tensor) -> Tensor:
        return self._of[items]

    def __getattr__(self, name: str) -> Any:
        if name not in ("items", "labels", "mean"):
            self._paths.add(f"asks for {name}")
        return getattr(self._of, name)


def _asked_for(method: Method, programs: list[Program]) -> set[str]:
    """The sums over tables and mini-batches that losses, rewrites and derived numbers look at."""
    paths: set[str] = set()
    items = torch.arange(ITEMS)
    batch = _Noting(PlainBatch(items, (items % 3 == 0).to(torch.get_default_dtype())), paths)
    weights = Values(initial_values(method.parameters(), 0, torch.device("cpu")))
    weights |= {"interactions": torch.full((1, 1), 4.0), "held": torch.ones(1, 1)}
    own = (items % 3 == 0).to(torch.get_default_dtype()).unsqueeze(1)
    weights["own"] = _Noting(PlainTable(own, items[::3]), paths)
    for name, parameter in method.parameters().items():
        if parameter.table:
            weights[name] = _Noting(PlainTable(weights[name], items[::3]), paths)
    if derived := method.derived(weights):
        paths.add("numbers derived from whole tables")
        weights |= derived
    for operation in (operation for program in programs for operation in program):
        if isinstance(operation, Fit):
            for step in operation.steps:
                (step.loss or operation.loss)(weights, batch)
        elif isinstance(operation, Rewrite) and not isinstance(operation.rows, TableRewrite):
            operation.rows(weights, items)
    return paths


def _of_step(step: Step) -> Iterator[str]:
    yield f"by {step.optimiser}"
    if step.batch_decay < 1:
        yield f"rates decay by {step.optimiser}"
    if any(step.weight_decay.values()):
        yield f"weights decay by {step.optimiser}"
    if step.gradient_noise:
        yield "guarded gradients"
    if step.keep_state:
        yield f"moments of {step.optimiser} kept"
    if step.loss is not None:
        yield "a loss of the step's own"


def _of_program(program: Program, where: Mapping[str, str]) -> Iterator[str]:
    fits = [operation for operation in program if isinstance(operation, Fit)]
    yield f"fits {min(len(fits), 2)}"
    for fit in fits:
        yield f"steps {min(len(fit.steps), 2)}"
        if fit.early_stop is not None and fit.epochs > 1:
            yield "early stop"
        if fit.samples is not None:
            yield "half of the samples"
        for step in fit.steps:
            yield from _of_step(step)
    for operation in program:
        if isinstance(operation, Rewrite):
            how = "as a whole" if isinstance(operation.rows, TableRewrite) else "row by row"
            yield f"rewrite {where[operation.name]} {how}"
        elif isinstance(operation, Upload):
            goal = "itself" if operation.into == operation.name else where[operation.into]
            what = "" if operation.transform is None else "a function of "
            yield f"upload {what}{where[operation.name]} into {goal}"


def _of_settings(settings: Mapping[str, Any]) -> Iterator[str]:
    yield f"weighting {settings['weighting']}"
    yield "one mini-batch" if settings["batch_size"] >= 1000 else "many mini-batches"
    if settings["participation"] < 1:
        yield "some clients train"
    if settings["aggregated"] < 1:
        yield "some clients are aggregated"
    if settings["aggregate_from"] > 1:
        yield "clients alone at first"
    if settings["round_decay"] < 1:
        yield "rates decay from round to round"
    if settings["ldp"]:
        yield "noise on uploads" if settings["ldp_clip"] is None else "noise on clipped uploads"


def _of_model(method: Method, where: Mapping[str, str]) -> Iterator[str]:
    for name, parameter in method.parameters().items():
        yield where[name]
        yield f"combined by {parameter.combine}"
        if parameter.start is not None:
            yield f"{where[name]} starts from a shared one"
        if parameter.reset_each_round:
            yield f"{where[name]} is reset_each_round"
        if not parameter.downloaded:
            yield f"{where[name]} is not sent"
        if name in method.scored_with_own_copy:
            yield f"own copy of {where[name]} is scored"
    if any(parameter.location == "personal" for parameter in method.parameters().values()):
        rule = method.server
        while isinstance(rule, RenamedRule):
            rule = rule.rule
        mixed = type(rule).mix is not ServerRule.mix
        yield "personal uploads are mixed" if mixed else "personal uploads stay as they are"


def paths_of_method(method: Method) -> frozenset[str]:
    """The engine paths that a method takes, with its kind: what its uploads, its clients' tables and its plug-in are."""
    parameters = method.parameters()
    where = {name: f"{one.location} {'table' if one.table else 'tensor'}" for name, one in parameters.items()}
    local = [trace(method, round_) for round_ in ROUNDS]
    late = [trace_after_aggregation(method, round_) for round_ in ROUNDS]
    programs = [*local, *(program for program, _ in late)]
    paths = {*_of_settings(method.settings), *_of_model(method, where), *_asked_for(method, programs)}
    paths |= {path for program in programs for path in _of_program(program, where)}
    paths |= {f"{who} work on when the server has answered" for _, who in late}
    # Programs of one shape need the same.
    shapes = {shape_of(program): program for program in programs}
    if any(needs_of(program, method).whole_tables for program in shapes.values()):
        paths.add("every row moves")
    own = any(one.table and one.location in ("local", "private") for one in parameters.values())
    uploads = [operation for program in local for operation in program if isinstance(operation, Upload)]
    goals = "+".join(sorted({parameters[upload.into].location for upload in uploads})) or "nowhere"
    paths.add(f"uploads into {goals}, {'own' if own else 'no own'} tables")
    return frozenset(paths | ({"plugged in"} if isinstance(method, Plugin) else set()))
