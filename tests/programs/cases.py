"""What a case of the corpus is: a method in which something unusual is written, and what must become of it.

Imports little of fedrec, so that cases also run against other versions of it.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from torch import Tensor

from fedrec.federation.model import (
    Batch,
    Client,
    Initial,
    Method,
    Parameter,
    Weights,
    dot,
    item_table,
    matrix,
    vector,
)

Expected = Literal["trained", "refused", "either", "error"]
"""All engines train it to the numbers of the loop; all refuse it; an engine may do one or the other; or all end with the
very error that the case raises."""

SETTINGS: Mapping[str, Any] = {
    "participation": 1.0,
    "clients": None,
    "aggregated": 1.0,
    "aggregate_from": 1,
    "weighting": "size",
    "ldp": 0.0,
    "ldp_clip": None,
    "negatives": 1,
    "batch_size": 4,
    "local_epochs": 2,
    "early_stop": None,
    "optimiser": "adam",
    "rate": 0.05,
    "item_factor": 1.0,
    "item_scale": "one",
    "batch_decay": 1.0,
    "round_decay": 1.0,
    "d": 4,
}
"""The settings of a run that a case does not change."""

ROWS = (1, 3, 6, 9)
"""The training interactions of the made clients: unequal, one of them with a single interaction."""


@dataclass(frozen=True, eq=False)
class Case:
    """A method by name, and what is expected of it."""

    name: str
    says: str
    """What it exercises, in a line."""
    make: Callable[[Mapping[str, Any], int], Method]
    expected: Expected = "trained"
    text: str = ""
    """What a refusal must match, as a regular expression."""
    by_check: bool = False
    """Whether only a comparison with the loop can tell that an engine gets it wrong: other engines may."""
    unsteady: bool = False
    """Whether rounding alone may decide its numbers."""
    needs: tuple[str, ...] = ()
    """Methods of a mini-batch that it calls; a version of fedrec that lacks one cannot run it."""
    quick: bool = False
    """Whether it is quick, so that `make test` may run it."""
    settings: Mapping[str, Any] = field(default_factory=dict)
    items: int = 30
    rounds: int = 2
    rows: tuple[int, ...] = ROWS


def parts(items: int, d: int = 4) -> dict[str, Parameter]:
    """Parameters that a case may have beside Q and p: of many widths, shapes and locations."""
    normal, small = Initial("normal", 1.0), Initial("uniform", 0.5)
    return {
        "Q": item_table(items, d, "shared", normal),
        "p": vector(d, "private", normal),
        "b": item_table(items, 1, "shared", small),
        "c": item_table(items, 1, "private", small),
        "D": item_table(items, d, "private", normal),
        "E": item_table(items, 3, "local", small),
        "R": item_table(items, d, "scratch", small),
        "u": vector(1, "private", small),
        "t": vector(1, "shared", Initial("constant", 0.4)),
        "h": vector(d, "shared", Initial("constant", 1.0)),
        "z": vector(d, "private", Initial("constant", 0.0)),
        "M": matrix(d, d, "shared", small),
        "N": matrix(d, 3, "private", small),
        "o": matrix(d, 1, "shared", small),
        "g": vector(d, "server", normal),
        "P": vector(d, "personal", normal),
    }


class Factorised(Method):
    """Matrix factorisation with further parameters, trained together on a loss of a case."""

    def __init__(
        self,
        settings: Mapping[str, Any],
        items: int,
        loss: Callable[..., Any],
        further: Iterable[str],
        frozen: Iterable[str],
    ) -> None:
        self._names = ("Q", "p", *further)
        self._frozen = tuple(frozen)
        super().__init__(settings, items)
        self.written = loss

    def parameters(self) -> dict[str, Parameter]:
        known = parts(self.items, self.settings["d"])
        return {name: known[name] for name in self._names}

    def score(self, w: Weights, items: Tensor) -> Tensor:
        return dot(w.Q[items], w.p)

    def local_round(self, client: Client) -> None:
        owned = self.parameters()
        if "R" in owned:
            client.rewrite("R", lambda w, items: w.Q[items] * 0.5)
        asked = [name for name, part in owned.items() if part.location not in ("server", "scratch")]
        rates = {name: self.settings["rate"] for name in asked if name not in self._frozen}
        self.fit(client, self.step(client, rates), loss=self.written)
        client.upload(*(name for name, part in owned.items() if part.location in ("shared", "personal")))


LossFunction = Callable[[Weights, Batch], Any]


class Corpus:
    """Cases by name, collected by decorators."""

    def __init__(self) -> None:
        self.cases: dict[str, Case] = {}

    def loss(
        self, further: str = "", *, frozen: str = "", **facts: Any
    ) -> Callable[[LossFunction], LossFunction]:
        """A function of weights and mini-batch is the loss of a case; its docstring says what it exercises.

        `further` are parameters of `parts` beside Q and p, of which `frozen` are not trained.
        """

        def collected(function: LossFunction) -> LossFunction:
            def make(settings: Mapping[str, Any], items: int) -> Method:
                return Factorised(settings, items, function, further.split(), frozen.split())

            self._add(function, make, facts)
            return function

        return collected

    def structure(self, **facts: Any) -> Callable[[type[Method]], type[Method]]:
        """A method class is a case; its docstring says what it exercises."""

        def collected(method: type[Method]) -> type[Method]:
            self._add(method, method, facts)
            return method

        return collected

    def _add(self, written: Any, make: Callable[..., Method], facts: dict[str, Any]) -> None:
        name = written.__name__
        assert name not in self.cases, f"two cases are called {name}"
        assert written.__doc__, f"{name} does not say what it exercises"
        self.cases[name] = Case(name, " ".join(written.__doc__.split()), make, **facts)
