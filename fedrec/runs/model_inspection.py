"""Inspect the model of a finished run: the state of its clients after the last round, and other records.

Item tables of a user, by name:
`own`         the client's table: its second table if the method has one (FedRAP's D), else its copy
`shared`      the server's table: one for all users, or one for each user
`scored`      the table that scores read: `own` and `shared` as the method adds, mixes or merges them
`upload`      the user's last upload
`correction`  the term that PFedCLR adds to the user's copy
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fedrec.central.learner import CentralLearner
from fedrec.data.split import TEST, TRAIN, VALIDATION
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import metrics_of
from fedrec.evaluation.scoring import candidate_ranks
from fedrec.federation.federation import Federation
from fedrec.federation.model.method import Method
from fedrec.federation.model.plugin import Plugin
from fedrec.federation.model.weights import Weights
from fedrec.federation.observe.recorder import extras
from fedrec.federation.state.client_tensor import ClientTensor
from fedrec.federation.state.sparse_rows import SparseRowsTensor
from fedrec.random.purpose import LANES, Purpose
from fedrec.random.with_numpy import draws
from fedrec.runs.record import RunRecord

_CHUNK = 1 << 24
"""Most numbers of whole tables to process at once."""


@dataclass(frozen=True)
class ModelInspection:
    """The state of the clients of a finished run."""

    run: RunRecord

    @property
    def federation(self) -> Federation:
        """The model, of a method with clients."""
        if not isinstance(self.run.learner, Federation):
            raise ResultError(f"{self.run.folder}: a centralised method has no clients to inspect.")
        return self.run.learner

    def recorded(self, what: str, name: str, user: int) -> Tensor:
        """The recorded `vectors` (rounds, ...) or `uploads` of a user."""
        records = extras(self.run.tensors)
        users = records.get(f"users/{what}", torch.empty(0)).tolist()
        if f"{what}/{name}" not in records or user not in users:
            raise ResultError(
                f"{self.run.folder}: {what} of user {user} were not recorded. Train the run again with "
                f"--record {what}={user}."
            )
        values = records[f"{what}/{name}"]
        return values[:, users.index(user)] if what == "vectors" else values[users.index(user)]

    def items(self, user: int, *parts: int) -> NDArray[np.int32]:
        """The user's items in some parts of the split."""
        split = self.run.split
        items: NDArray[np.int32] = split.item[(split.user == user) & np.isin(split.part, parts)]
        return items

    def marks(self, user: int, *, held_out: bool) -> NDArray[np.str_]:
        """A mark for each item: `training`, `held out` (with the option) or `other`; (items,)."""
        marks = np.full(self.run.split.items, "other", dtype="<U8")
        if held_out:
            marks[self.items(user, VALIDATION, TEST)] = "held out"
        marks[self.items(user, TRAIN)] = "training"
        return marks

    def table(self, name: str, user: int) -> Tensor:
        """An item table of a user, by its name in the module's docstring: (items, d)."""
        learner = self.run.learner
        if isinstance(learner, CentralLearner):
            if name != "shared":
                raise ResultError(f"{self.run.folder}: a centralised method has only shared tables.")
            return learner.values["Q"].detach()
        if name == "upload":
            return self._upload(user)
        return self.tables(name, self.run.client_index([user]))[0]

    def tables(self, name: str, who: Tensor) -> Tensor:
        """An item table of the clients `who`, by name: (clients, items, d)."""
        with torch.no_grad():
            return _TABLES[name](self.federation, who).expand(len(who), -1, -1)

    def measured(self, name: str, measure: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
        """A measure of one table for every client: (clients,)."""
        clients = self.run.clients
        at_once = max(1, _CHUNK // (clients.items * self.run.settings["d"]))
        chunks = [measure(self.tables(name, who)) for who in torch.arange(len(clients)).split(at_once)]
        return torch.cat(chunks).double().numpy()

    def _upload(self, user: int) -> Tensor:
        method = self.federation.method
        records = extras(self.run.tensors)
        names = [key.removeprefix("uploads/") for key in records if key.startswith("uploads/")]
        tables = [name for name in names if self.federation.state.parameters[name].table]
        wanted = _on_server(method)
        upload = self.recorded("uploads", wanted if wanted in tables else "".join(sorted(tables)[:1]), user)
        if upload.isnan().all():
            raise ResultError(f"{self.run.folder}: user {user} never uploaded anything.")
        return upload


def merging_weights(inside: ModelInspection, users: Iterable[int], items: int) -> Tensor:
    """Rho of elastic merging, of some users (rows) for the first items (columns)."""
    federation = inside.federation
    who = inside.run.client_index(list(users))
    w, some = federation.scoring_weights(who), torch.arange(items).expand(len(who), -1)
    method = federation.method
    own_rows, server_rows = w[_backbone(method).item_table][some], w[_on_server(method)][some]
    with torch.no_grad():
        rho: Tensor = method.weight(w, own_rows, server_rows - own_rows)  # type: ignore[attr-defined]
    return rho.expand(len(who), items, 1).squeeze(-1)


WAYS = ("own", "global", "another user's")


def scored_with(inspection: ModelInspection, way: str) -> dict[str, float]:
    """Test metrics if users are scored with their own item table, the server's, or another user's."""
    federation = inspection.federation
    name = _backbone(federation.method).item_table
    kept, count = federation.state.client_tensors[name], len(federation.clients)
    stand_in: dict[str, Callable[[], ClientTensor]] = {
        "own": lambda: kept,
        "global": lambda: SparseRowsTensor(federation.state.shared[name], count),
        "another user's": lambda: cast(ClientTensor, _Borrowed(kept, lenders(count, federation.seed))),
    }
    try:
        federation.state.client_tensors[name] = stand_in[way]()
        return metrics_of(candidate_ranks(federation, federation.clients, "test").numpy())
    finally:
        federation.state.client_tensors[name] = kept


def lenders(count: int, seed: int) -> Tensor:
    """A random lender for each client: another client, and each client lends once; (count,)."""
    words = draws(seed, Purpose.LENDERS, user=0, first=0, count=-(-count // LANES) * LANES)[:count]
    order = torch.from_numpy(np.argsort(words, kind="stable"))
    lender = torch.empty_like(order)
    lender[order] = order.roll(1)
    return lender


class _Borrowed:
    """The tables of clients, read-only, with each client's table replaced by its lender's."""

    def __init__(self, kept: ClientTensor, lender: Tensor) -> None:
        self._kept, self._lender = kept, lender

    def whole(self, who: Tensor) -> Tensor:
        return self._kept.whole(self._lender[who])

    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        return self._kept.rows(self._lender[who], item)


def _backbone(method: Method) -> Method:
    return _backbone(method.backbone) if isinstance(method, Plugin) else method


def _on_server(method: Method) -> str:
    """The server's parameter that holds the item table."""
    name = _backbone(method).item_table
    return method.server_name(name) if isinstance(method, Plugin) else name


def own_table(method: Method) -> str:
    """The name of the parameter that is a user's own item table."""
    backbone = _backbone(method)
    return backbone.personal_table or backbone.item_table


def _own(federation: Federation, who: Tensor) -> Tensor:
    name = own_table(federation.method)
    if name not in federation.state.client_tensors:
        raise ResultError("users of this method have no item table of their own; show their `upload`.")
    return federation.state.client_tensors[name].whole(who)


def _shared(federation: Federation, who: Tensor) -> Tensor:
    name, state = _on_server(federation.method), federation.state
    return state.shared[name].unsqueeze(0) if name in state.shared else state.client_tensors[name].whole(who)


def _correction(federation: Federation, who: Tensor) -> Tensor:
    weights, items = federation.scoring_weights(who), _every(federation, who)
    correction: Tensor = federation.method.correction(weights, items)  # type: ignore[attr-defined]
    return correction


def _scored(federation: Federation, who: Tensor) -> Tensor:
    return _combined(federation.method, federation.scoring_weights(who), _every(federation, who))


def _combined(method: Method, w: Weights, items: Tensor) -> Tensor:
    """The rows of the item table that a score reads; a plug-in passes its view to its backbone."""
    if isinstance(method, Plugin):
        return _combined(method.backbone, method.view(w), items)
    rows: Tensor = w[method.item_table][items]
    if method.personal_table is not None:
        own = w[method.personal_table][items]
        rows = rows + own if method.additive else own
    if hasattr(method, "correction"):
        rows = rows + method.correction(w, items)
    return rows


def _every(federation: Federation, who: Tensor) -> Tensor:
    return torch.arange(federation.clients.items).expand(len(who), -1)


_TABLES: Mapping[str, Callable[[Federation, Tensor], Tensor]] = {
    "own": _own,
    "shared": _shared,
    "scored": _scored,
    "correction": _correction,
}
