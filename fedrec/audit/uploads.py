"""Attacks on uploads: guess a client's training items from what the server sees of it in a round.

The server sees the download and the upload of a client, including the client's noise. It knows the protocol
(several negatives are sampled for each training item), but neither the client's vector nor its sampled items.
It is honest but curious. An attacker gives every item a score:

`norm`         the change of the item's row, |upload - download|. A row without samples does not change, so
this reveals the sampled items; among these it separates training items only by length. `direction`    the
movement along the one line that all changes share. In a dot-product model the gradient of a row is a multiple
of the client's vector: one way for training items, the other way for negatives. The first right singular
vector of the change is that vector, up to its sign. Negatives outnumber training items, so the side with
fewer rows has the training items. A row counts if it exceeds the noise, which the other singular vectors
show; in a tie, the side with the smaller sum counts. This is wrong for clients with more training items than
negatives. `consecutive`  the difference from the client's earlier upload, |upload - earlier upload|. It needs
no download. It includes the changes by other clients in between, unless clients continue from their own
tables, and it lacks changes that the client made both times. So training items may have moved least: an AUC
below one half is information, too.

What the attackers see, by method and the server's parameter:

    FedMF, FedNCF, FedRecon,      Q: the client's copy against the server's FedFast, PFedRec, PFedCLR FedRAP
    C: the same; D stays on the client. Weight decay moves every row a little CoLR         A, row by row,
    against 0. The server can form A B, which is A rotated and scaled: rows have the same lengths and
    directions, up to a factor. B differs in every round, so `consecutive` compares rows of different
    coordinates FedCIA       S: row i has the products of item i with all items, against the mean over
    clients. The method adds its own noise only to the mean, so it is not included here: a real server sees
    less (`ldp` adds noise to every upload) FedEASE      x x^T: the products of a client's items, against 0.
    Only the rows of its items are not 0 FedEM        G: the client's table against its newest aggregate, or
    the initial table before its first pFedGraph    G: the same GPFedRec     R: the client's copy of Q against
    the server's Q PerFedRec    K: the client's table against its cluster's table, from which it starts after
    the second round +dualper     as the backbone +em, +plgc   G: the client's own table against the mean over
    clients; where the backbone has a personal table (FedRAP), +plgc is as the backbone

FedFast and PerFedRec also upload the user's vector, which would give `direction` its line; these attackers do
not use it. A method that uploads no item table has no uploads to attack.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedrec.errors import ResultError
from fedrec.federation.clients import Clients
from fedrec.federation.observe.recorder import extras

FEW = 10
"""The length of the second list of guesses, equal for every client."""
_STANDS_OUT = 3.0
"""The number of noise deviations above which a row counts as moved."""
_POWER_STEPS = 100
"""Steps of the power iteration that finds the common direction of a table as wide as it is high."""


def norm_scores(change: Tensor) -> Tensor:
    """The length of each row of `change` `(clients, items, d)`, as `(clients, items)`."""
    return change.double().square().sum(2).sqrt()


def direction_scores(change: Tensor) -> Tensor:
    """The movement of each row of `change` `(clients, items, d)` in the direction of training items.

    The result has shape `(clients, items)`.
    """
    wide = change.double()
    along = (wide @ _common_direction(wide)).squeeze(2)
    numbers = wide.shape[1] * max(1, wide.shape[2] - 1)
    rest = wide.square().sum((1, 2)) - along.square().sum(1)
    noise = (rest.clamp(min=0).unsqueeze(1) / numbers).sqrt()
    moved = along.abs() > _STANDS_OUT * noise
    surplus = (moved & (along > 0)).sum(1) - (moved & (along < 0)).sum(1)
    surplus = torch.where(surplus == 0, along.sum(1), surplus.double())
    scores: Tensor = torch.where(surplus > 0, -1.0, 1.0).unsqueeze(1) * along
    return scores


def _common_direction(change: Tensor) -> Tensor:
    """The first right singular vector of each client's table: `(clients, items, d)` to `(clients, d, 1)`.

    A table with a column for each item (FedCIA, FedEASE) can have rank one, and LAPACK then finds no
    eigenvectors. Such tables use power iteration, from the longest row.
    """
    if change.shape[2] < change.shape[1]:
        _, axes = torch.linalg.eigh(change.transpose(1, 2) @ change)
        last: Tensor = axes[:, :, -1:]
        return last
    longest = change.square().sum(2).argmax(1)
    axis = change[torch.arange(len(change)), longest].unsqueeze(2)
    for _ in range(_POWER_STEPS):
        axis = torch.nn.functional.normalize(change.transpose(1, 2) @ (change @ axis), dim=1)
    return axis


def auc(scores: Tensor, wanted: Tensor) -> Tensor:
    """The probability, for each client (row), that a wanted item scores above another; ties count half.

    `wanted` is a mask of the shape of `scores`; every row needs wanted items and others.
    """
    scores = scores.contiguous()
    ordered = scores.sort(1).values
    below, upto = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    # Equal scores share their mean rank.
    rank = (below + upto + 1).double() / 2
    count, others = wanted.sum(1), (~wanted).sum(1)
    return ((rank * wanted).sum(1) - count * (count + 1) / 2) / (count * others)


def precision(scores: Tensor, wanted: Tensor, length: Tensor) -> Tensor:
    """The share of wanted items among the `length` best items of each client.

    Ties at the end of the list count with the mean over random orders.
    """
    ordered = scores.sort(1, descending=True).values
    last = ordered.gather(1, length.unsqueeze(1) - 1)
    above, level = scores > last, scores == last
    free = (length - above.sum(1)).double() / level.sum(1)
    return ((above & wanted).sum(1) + free * (level & wanted).sum(1)) / length


def attack(scores: Tensor, training: Tensor) -> dict[str, Tensor]:
    """Measures by client of how well `scores` `(clients, items)` find the items of the mask `training`.

    `precision_at_k` is the precision of the k best items, k being the number of training items. `chance` is
    the precision of random items.
    """
    count = training.sum(1)
    few = torch.full_like(count, min(FEW, training.shape[1]))
    return {
        "auc": auc(scores, training),
        "precision_at_k": precision(scores, training, count),
        f"precision_at_{FEW}": precision(scores, training, few),
        "chance": training.double().mean(1),
    }


def attack_uploads(tensors: Mapping[str, Tensor], clients: Clients) -> dict[str, dict[str, dict[str, Any]]]:
    """Run every attacker on every recorded item table of a run; return means over clients.

    By parameter and attacker: the measures of `attack`, `auc_error` (the standard error of the mean) and the
    number of attacked `clients`. These are the watched clients that took part, for `consecutive` at least
    twice. A mean over no clients is None. `tensors` are those of a finished run, `clients` those of its
    split. Raise `ResultError` if the run recorded no traffic, or has other clients.
    """
    recorded = extras(tensors)
    names = [
        key.removeprefix("traffic/").removesuffix("/upload")
        for key in recorded
        if key.startswith("traffic/") and key.endswith("/upload")
    ]
    if not names:
        raise ResultError("the run recorded no uploads. Train it again with --record traffic.")
    training = _training_items(recorded["users/traffic"], clients)
    return {name: _attack_table(recorded, name, training.cpu()) for name in sorted(names)}


def _attack_table(recorded: Mapping[str, Tensor], name: str, training: Tensor) -> dict[str, dict[str, Any]]:
    download, upload, earlier, rounds = (
        recorded[f"traffic/{name}/{part}"].cpu() for part in ("download", "upload", "earlier", "rounds")
    )
    once, twice = (rounds > 0).T
    change = upload[once] - download[once]
    return {
        "norm": _means(attack(norm_scores(change), training[once])),
        "direction": _means(attack(direction_scores(change), training[once])),
        "consecutive": _means(attack(norm_scores(upload[twice] - earlier[twice]), training[twice])),
    }


def _means(measures: Mapping[str, Tensor]) -> dict[str, Any]:
    by_client = measures["auc"]
    means: dict[str, Any] = {
        name: float(values.mean()) if len(values) else None for name, values in measures.items()
    }
    error = float(by_client.std() / len(by_client) ** 0.5) if len(by_client) > 1 else None
    return means | {"auc_error": error, "clients": len(by_client)}


def _training_items(users: Tensor, clients: Clients) -> Tensor:
    """A mask of the training items (columns) of users (rows), by their numbers in the dataset."""
    rows = {int(user): row for row, user in enumerate(clients.user.tolist())}
    missing = [user for user in users.tolist() if user not in rows]
    if missing:
        raise ResultError(
            f"the run recorded user {missing[0]}, who is not in this split. Give the split that it was "
            "trained on."
        )
    who = torch.tensor([rows[user] for user in users.tolist()], device=clients.device)
    item, row = clients.training(who)
    mask = torch.zeros(len(who), clients.items, dtype=torch.bool, device=clients.device)
    mask[row, item] = True
    return mask
