"""Inside a finished run: its clients, its model after the last round, and what it kept besides.

The item tables a picture can show of a user:
`own`         the table the user keeps: beside the server's where a method has two (FedRAP's D), else its copy
`shared`      the server's: one for all, or where everyone gets one of its own, the user's
`scored`      what scores are made of: own and shared as the method adds, mixes or merges them
`upload`      what the user uploaded when it last took part
`correction`  what PFedCLR adds to the user's copy
"""

from collections.abc import Callable, Iterable, Mapping
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
from fedrec.federation.model.method import Method, Weights
from fedrec.federation.model.plugin import Plugin
from fedrec.federation.observe.recorder import extras
from fedrec.federation.state.kept import Kept, RowsKept
from fedrec.random.with_numpy import LANES, Purpose, draws
from fedrec.runs.finished import Finished

_CHUNK = 1 << 24
"""Numbers of whole tables that are looked at together."""


class Inside(Finished):
    """A finished run, and a look at what its clients hold."""

    @property
    def federation(self) -> Federation:
        """Its model, of a method with clients."""
        if not isinstance(self.learner, Federation):
            raise ResultError(f"{self.folder}: a centralised method has no clients to look into.")
        return self.learner

    def place(self, user: int) -> Tensor:
        """The client that is `user` of the dataset, as one place."""
        found = (self.clients.user == user).nonzero().squeeze(1)
        if not len(found):
            raise ResultError(f"{self.folder}: there is no user {user} in its split.")
        return found

    def kept(self, kind: str, name: str, user: int) -> Tensor:
        """What the run kept of a user besides its state, `vectors` after each round or `uploads`."""
        found = extras(self.tensors)
        users = found.get(f"users/{kind}", torch.empty(0)).tolist()
        if f"{kind}/{name}" not in found or user not in users:
            raise ResultError(
                f"{self.folder}: {kind} of user {user} were not kept. Train it with --record {kind}={user}."
            )
        kept = found[f"{kind}/{name}"]
        return kept[:, users.index(user)] if kind == "vectors" else kept[users.index(user)]

    def items(self, user: int, *parts: int) -> NDArray[np.int32]:
        """The user's items of some parts of the split."""
        chosen = (self.split.user == user) & np.isin(self.split.part, parts)
        found: NDArray[np.int32] = self.split.item[chosen]
        return found

    def marks(self, user: int, *, held_out: bool) -> NDArray[np.str_]:
        """For each item: `training`, `held out` (if these are asked for) or `other`."""
        found = np.full(self.split.items, "other", dtype="<U8")
        if held_out:
            found[self.items(user, VALIDATION, TEST)] = "held out"
        found[self.items(user, TRAIN)] = "training"
        return found

    def table(self, name: str, user: int) -> Tensor:
        """An item table of a user (see above): items x d."""
        if isinstance(self.learner, CentralLearner):
            if name != "shared":
                raise ResultError(f"{self.folder}: a centralised method has shared tables alone.")
            table: Tensor = self.learner.weights["Q"].detach()
            return table
        if name == "upload":
            return self._upload(user)
        return self.tables(name, self.place(user))[0]

    def tables(self, name: str, who: Tensor) -> Tensor:
        """The same for some clients at once, on a leading axis."""
        with torch.no_grad():
            return _TABLES[name](self.federation, who).expand(len(who), -1, -1)

    def measured(self, name: str, measure: Callable[[Tensor], Tensor]) -> NDArray[np.float64]:
        """A measure of a table of every client."""
        everyone = torch.arange(len(self.clients))
        at_once = max(1, _CHUNK // (self.clients.items * self.summary["settings"]["d"]))
        found = [measure(self.tables(name, who)) for who in torch.split(everyone, at_once)]
        return torch.cat(found).double().numpy()

    def _upload(self, user: int) -> Tensor:
        method = self.federation.method
        names = [key.removeprefix("uploads/") for key in extras(self.tensors) if key.startswith("uploads/")]
        tables = [name for name in names if self.federation.state.parameters[name].table]
        wanted = _on_server(method)
        found = self.kept("uploads", wanted if wanted in tables else "".join(sorted(tables)[:1]), user)
        if found.isnan().all():
            raise ResultError(f"{self.folder}: user {user} never uploaded anything.")
        return found


def merging_weights(inside: Inside, users: Iterable[int], items: int) -> Tensor:
    """Rho of elastic merging, of some users (rows) for the first items (columns)."""
    federation = inside.federation
    who = torch.cat([inside.place(user) for user in users])
    w, some = federation.seen(who), torch.arange(items).expand(len(who), -1)
    method = federation.method
    own, other = w[_backbone(method).item_table][some], w[_on_server(method)][some]
    with torch.no_grad():
        rho: Tensor = method.weight(w, own, other - own)  # type: ignore[attr-defined]
    return rho.expand(len(who), items, 1).squeeze(-1)


WAYS = ("own", "global", "another user's")


def inference(inside: Inside, way: str) -> dict[str, float]:
    """Test metrics where users are scored with their own item table, the server's, or another user's."""
    federation = inside.federation
    name = _backbone(federation.method).item_table
    kept, count = federation.state.kept[name], len(federation.clients)
    stand_in: dict[str, Callable[[], Kept]] = {
        "own": lambda: kept,
        "global": lambda: RowsKept(federation.state.shared[name], count),
        "another user's": lambda: cast(Kept, _Borrowed(kept, lenders(count, federation.seed))),
    }
    try:
        federation.state.kept[name] = stand_in[way]()
        return metrics_of(candidate_ranks(federation, federation.clients, "test").numpy())
    finally:
        federation.state.kept[name] = kept


def lenders(count: int, seed: int) -> Tensor:
    """For each client another one, drawn at random; nobody lends to two."""
    words = draws(seed, Purpose.LENDERS, user=0, first=0, count=-(-count // LANES) * LANES)[:count]
    order = torch.from_numpy(np.argsort(words, kind="stable"))
    found = torch.empty_like(order)
    found[order] = order.roll(1)
    return found


class _Borrowed:
    """What clients keep, each looking into another one's; for reading alone."""

    def __init__(self, kept: Kept, lender: Tensor) -> None:
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
    return method.stored(name) if isinstance(method, Plugin) else name


def own_table(method: Method) -> str:
    """The parameter that is a user's own item table."""
    backbone = _backbone(method)
    return backbone.personal_table or backbone.item_table


def _own(federation: Federation, who: Tensor) -> Tensor:
    name = own_table(federation.method)
    if name not in federation.state.kept:
        raise ResultError("users of this method keep no item table of their own; show their `upload`.")
    return federation.state.kept[name].whole(who)


def _shared(federation: Federation, who: Tensor) -> Tensor:
    name, state = _on_server(federation.method), federation.state
    return state.shared[name].unsqueeze(0) if name in state.shared else state.kept[name].whole(who)


def _correction(federation: Federation, who: Tensor) -> Tensor:
    found: Tensor = federation.method.correction(federation.seen(who), _every(federation, who))  # type: ignore[attr-defined]
    return found


def _scored(federation: Federation, who: Tensor) -> Tensor:
    return _combined(federation.method, federation.seen(who), _every(federation, who))


def _combined(method: Method, w: Weights, items: Tensor) -> Tensor:
    """The rows a score is made of; a plug-in shows its backbone what they are."""
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
