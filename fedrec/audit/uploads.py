"""Attacks on uploads: which items a client trained on, guessed from what the server sees of it in a round.

The server sees what it gave the client and what the client sent, the client's noise included. It knows the
protocol (several negatives are drawn for each training item), but neither the client's vector nor what it
sampled. It is honest but curious: it does what it should, and looks. An attacker gives every item a score:

`norm`         how far the item's row moved: |upload - download|. A row without samples rests, so this tells
               which items were sampled; of these it knows training items only by the length of the way.
`direction`    how far the row moved along the one line that all changes have in common. In a dot-product
               model the gradient of a row is a multiple of the client's vector, one way for training items
               and the other for negatives. The first right singular vector of the change is that vector, up
               to its sign. Negatives outnumber training items, so training items are on the side that fewer
               rows went to. A row counts if it stands out of the noise, which is what the other singular
               vectors show; with as many on both sides, it is the side of the smaller sum. This is the wrong
               side for clients with more training items than sampled negatives.
`consecutive`  how far the row is from where the client's earlier upload had it: |upload - earlier upload|.
               What the server gave is not needed; but what other clients changed in between is in it too,
               unless clients go on from tables of their own, and what the client did alike both times
               cancels. So its training items may well have moved least: an AUC below one half then tells
               something as well.

What the attackers see, by method and the server's parameter:

    FedMF, FedNCF, FedRecon,      Q: the client's copy against the server's
    FedFast, PFedRec, PFedCLR
    FedRAP       C: the same; D stays at home. Weight decay moves every row a little
    CoLR         A, row by row, against 0. The server can form A B, which is A turned and stretched: rows have
                 the same lengths and directions, up to a factor. B is another one in every round, so
                 `consecutive` compares rows of different coordinates
    FedCIA       S: row i has the products of item i with all items, against the mean over clients. The
                 method's own noise is drawn for the mean alone, so it is not in here: a real server sees
                 less (`ldp` puts noise on every upload)
    FedEASE      x x^T: the products of what a client met, against nothing. Rows of its items alone are not 0
    FedEM        G: the client's table against its newest aggregate, or the start if it never got one
    pFedGraph    G: the same
    GPFedRec     R: the client's copy of Q against the server's Q
    PerFedRec    K: the client's table against its cluster's, from which it starts from the third round on
    +dualper     what the backbone shows
    +em, +plgc   G: the client's own table against the mean over clients; where the backbone has a personal
                 table (FedRAP) +plgc shows what the backbone shows

FedFast and PerFedRec upload the user's vector too, which these attackers leave alone: who has it need not
guess the direction. A method that uploads no item table has no traffic to attack.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from fedrec.errors import ResultError
from fedrec.federation.clients import Clients
from fedrec.federation.observe.recorder import extras

FEW = 10
"""The length of the list of guesses that is as long for every client."""
_STANDS_OUT = 3.0
"""Deviations of the noise from which on a row counts as moved."""
_POWER_STEPS = 100
"""Steps of the power iteration that finds the common direction of a table as wide as it is high."""


def norm_scores(change: Tensor) -> Tensor:
    """The length of each row of `change` (clients x items x d): clients x items."""
    return change.double().square().sum(2).sqrt()


def direction_scores(change: Tensor) -> Tensor:
    """How far each row of `change` (clients x items x d) went the way of training items: clients x items."""
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
    """The first right singular vector of each client's table (clients x items x d): clients x d x 1.

    A table with a column for each item (FedCIA, FedEASE) can have rank one, and LAPACK then finds no
    eigenvectors: power iteration takes their place, from the longest row.
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
    """Of each client (row), the chance that a wanted item has a higher score than another; equals count half.

    `wanted` is a mask of the shape of `scores`; every row needs wanted items and others.
    """
    scores = scores.contiguous()
    ordered = scores.sort(1).values
    below, upto = (torch.searchsorted(ordered, scores, right=right) for right in (False, True))
    # Equal scores share the mean of their places.
    rank = (below + upto + 1).double() / 2
    count, others = wanted.sum(1), (~wanted).sum(1)
    return ((rank * wanted).sum(1) - count * (count + 1) / 2) / (count * others)


def precision(scores: Tensor, wanted: Tensor, length: Tensor) -> Tensor:
    """Of each client, the share of wanted items among the `length` items of highest score.

    Where equals meet at the end of the list, its last places are dealt out among them at random: the mean.
    """
    ordered = scores.sort(1, descending=True).values
    last = ordered.gather(1, length.unsqueeze(1) - 1)
    above, level = scores > last, scores == last
    free = (length - above.sum(1)).double() / level.sum(1)
    return ((above & wanted).sum(1) + free * (level & wanted).sum(1)) / length


def attack(scores: Tensor, training: Tensor) -> dict[str, Tensor]:
    """How well `scores` (clients x items) find the items of the mask `training`: measures of each client.

    `precision_at_k` is that of a list as long as the client has training items; `chance` is that of a list of
    any length whose items are drawn at random.
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
    """Every attacker on every item table in the traffic a run kept: means over clients.

    By parameter and attacker: the measures of `attack`, `auc_error` (the standard error of the mean) and how
    many `clients` were attacked: those of the watched that took part, for `consecutive` twice. A mean over
    nobody is None. `tensors` are those of a finished run, `clients` those of its split; a `ResultError` tells
    of a run that kept no traffic, or of other clients.
    """
    kept = extras(tensors)
    names = [
        key.removeprefix("traffic/").removesuffix("/upload")
        for key in kept
        if key.startswith("traffic/") and key.endswith("/upload")
    ]
    if not names:
        raise ResultError(
            "the run kept no traffic of its clients: there is nothing to attack. Train it again with "
            "--record traffic."
        )
    training = _training_items(kept["users/traffic"], clients)
    return {name: _attack_table(kept, name, training.cpu()) for name in sorted(names)}


def _attack_table(kept: Mapping[str, Tensor], name: str, training: Tensor) -> dict[str, dict[str, Any]]:
    download, upload, earlier, rounds = (
        kept[f"traffic/{name}/{part}"].cpu() for part in ("download", "upload", "earlier", "rounds")
    )
    once, twice = (rounds > 0).T
    change = upload[once] - download[once]
    return {
        "norm": _means(attack(norm_scores(change), training[once])),
        "direction": _means(attack(direction_scores(change), training[once])),
        "consecutive": _means(attack(norm_scores(upload[twice] - earlier[twice]), training[twice])),
    }


def _means(measures: Mapping[str, Tensor]) -> dict[str, Any]:
    each = measures["auc"]
    means: dict[str, Any] = {
        name: float(values.mean()) if len(values) else None for name, values in measures.items()
    }
    error = float(each.std() / len(each) ** 0.5) if len(each) > 1 else None
    return means | {"auc_error": error, "clients": len(each)}


def _training_items(users: Tensor, clients: Clients) -> Tensor:
    """A mask of the training items (columns) of users (rows), by their numbers in the dataset."""
    places = {int(user): place for place, user in enumerate(clients.user.tolist())}
    missing = [user for user in users.tolist() if user not in places]
    if missing:
        raise ResultError(
            f"the run kept the traffic of user {missing[0]}, who is not in this split. Give the split "
            "that it was trained on."
        )
    who = torch.tensor([places[user] for user in users.tolist()], device=clients.device)
    item, place = clients.training(who)
    mask = torch.zeros(len(who), clients.items, dtype=torch.bool, device=clients.device)
    mask[place, item] = True
    return mask
