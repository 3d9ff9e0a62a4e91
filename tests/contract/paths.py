"""Which paths through the engines a composition takes, and of which kind it is: read off its settings, its
model, and what its clients are asked to do, so that a new method needs to be named nowhere."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from fedrec.federation.engines.loop import PlainBatch
from fedrec.federation.model.method import Loss, Method, RowsOf, Step
from fedrec.federation.model.parameters import initial_values
from fedrec.federation.model.plugin import Plugin
from fedrec.federation.model.weights import PlainTable, Values
from tests.federations import location

ITEMS = 12
"""Of the model that is looked at: the least with which every method works."""


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


class _NotingClient:
    """A client that trains nothing and notes what it is asked to do, and what losses and rewrites look at."""

    def __init__(self, method: Method, round_: int, paths: set[str]) -> None:
        self.round_ = round_
        self.fits = 0
        self.goals: set[str] = set()
        self._paths, self._parameters = paths, method.parameters()
        items = torch.arange(ITEMS)
        self._batch = _Noting(PlainBatch(items, (items % 3 == 0).to(torch.get_default_dtype())), paths)
        self._weights = Values(initial_values(self._parameters, 0, torch.device("cpu")))
        self._weights |= {"rows": torch.full((1, 1), 4.0), "held": torch.ones(1, 1)}
        for name, parameter in self._parameters.items():
            if parameter.table:
                self._weights[name] = _Noting(PlainTable(self._weights[name], items[::3]), paths)
        if derived := method.derived(self._weights):
            paths.add("numbers derived from whole tables")
            self._weights |= derived

    def fit(
        self, *steps: Step, epochs: int, loss: Loss, early_stop: float | None = None, half: str | None = None
    ) -> None:
        self.fits += 1
        self._paths |= {f"fit {min(self.fits, 2)}", f"steps {min(len(steps), 2)}"}
        self._paths |= {"early stop"} if early_stop is not None and epochs > 1 else set()
        self._paths |= {"half of the samples"} if half is not None else set()
        for step in steps:
            self._paths |= set(self._step(step))
            (step.loss or loss)(self._weights, self._batch)

    def rewrite(self, name: str, rows: RowsOf) -> None:
        self._paths.add(f"rewrite {self._where(name)}")
        rows(self._weights, torch.arange(ITEMS))

    def upload(self, *names: str, into: str | None = None) -> None:
        for name in names:
            self.goals.add(into or name)
            self._paths.add(
                f"upload {self._where(name)} into {'itself' if into in (None, name) else self._where(into)}"
            )

    def upload_products(self, name: str, into: str) -> None:
        self.goals.add(into)
        self._paths.add(f"upload products of {self._where(name)}")

    def approach_products(self, name: str, *_: object) -> None:
        self._paths.add(f"approach products with {self._where(name)}")

    def _where(self, name: str) -> str:
        parameter = self._parameters[name]
        return f"{location(parameter)} {'table' if parameter.table else 'tensor'}"

    @staticmethod
    def _step(step: Step) -> Iterator[str]:
        yield f"by {step.optimiser}"
        if step.batch_decay < 1:
            yield f"rates decay by {step.optimiser}"
        if any(step.weight_decay.values()):
            yield f"weights decay by {step.optimiser}"
        if step.guarded:
            yield "guarded gradients"
        if step.keep_state:
            yield f"moments of {step.optimiser} kept"
        if step.loss is not None:
            yield "a loss of the step's own"


def _of_settings(settings: dict[str, Any]) -> Iterator[str]:
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


def _of_model(method: Method) -> Iterator[str]:
    for name, parameter in method.parameters().items():
        where = f"{location(parameter)} {'table' if parameter.table else 'tensor'}"
        yield where
        yield f"combined by {parameter.combine}"
        if parameter.start is not None:
            yield f"{where} starts from a shared one"
        if parameter.renewed:
            yield f"{where} is renewed"
        if not parameter.sent:
            yield f"{where} is not sent"
        if method.evaluated.get(name) == "own":
            yield f"own copy of {where} is scored"
    if method.dense:
        yield "every row moves"
    if any(location(parameter) == "personal" for parameter in method.parameters().values()):
        yield "personal uploads are mixed" if method.mixed else "personal uploads stay as they are"
    if method.concluding != "nobody":
        yield f"{method.concluding} work on when the server has answered"


def paths_and_kind(method: Method) -> tuple[frozenset[str], str]:
    """The engine paths a method takes, and its kind: where its uploads go, whether clients keep item tables
    of their own, and whether it is a plug-in's."""
    paths = {*_of_settings(dict(method.settings)), *_of_model(method)}
    # The third round too: a method may begin otherwise.
    for round_ in (1, 3):
        client = _NotingClient(method, round_, paths)
        method.local_round(client)
        if method.concluding != "nobody":
            method.conclude(client)
    parameters = method.parameters()
    own = any(one.table and location(one) in ("local", "private") for one in parameters.values())
    goals = "+".join(sorted({location(parameters[goal]) for goal in client.goals})) or "nowhere"
    kind = f"uploads into {goals}, {'own' if own else 'no own'} tables"
    return frozenset(paths), kind + (", plugged in" if isinstance(method, Plugin) else "")
