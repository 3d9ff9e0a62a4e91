"""Statistics of datasets and their splits."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrec.data.interactions import Interactions
from fedrec.data.split import TEST, TRAIN, VALIDATION, Split


def describe_interactions(interactions: Interactions) -> dict[str, Any]:
    """Counts, sparsity, repeated pairs, and users with several interactions at their latest time."""
    pairs = _pairs(interactions.user, interactions.item, interactions.items)
    count = len(interactions)
    return {
        "dataset": interactions.dataset,
        "users": interactions.users,
        "items": interactions.items,
        "interactions": count,
        "sparsity_percent": 100 * (1 - count / (interactions.users * interactions.items)),
        "repeated_pairs": count - len(np.unique(pairs)),
        "timed": interactions.timed,
        "tied_last_users": _users_with_tied_last_time(interactions) if interactions.timed else None,
        "content": interactions.content_hash(),
    }


def describe_split(split: Split) -> dict[str, Any]:
    """The sizes of a split, and the users with a cold test item, or with one that they trained on."""
    train_user, train_item = split.pairs_of(TRAIN)
    test_user, test_item = split.pairs_of(TEST)
    _, validation_item = split.pairs_of(VALIDATION)
    trained = np.bincount(train_item, minlength=split.items)
    known = np.isin(_pairs(test_user, test_item, split.items), _pairs(train_user, train_item, split.items))
    return {
        "protocol": split.protocol.name,
        "seed": split.protocol.seed,
        "users": len(test_user),
        "dropped_users": len(split.dropped),
        "train_rows": len(train_user),
        "cold_test_users": int(np.count_nonzero(trained[test_item] == 0)),
        "test_in_train_users": int(np.count_nonzero(known)),
        "test_is_validation_users": int(np.count_nonzero(test_item == validation_item)),
        "content": split.content_hash(),
    }


def _users_with_tied_last_time(interactions: Interactions) -> int:
    latest = np.full(interactions.users, np.iinfo(np.int64).min)
    np.maximum.at(latest, interactions.user, interactions.time)
    at_latest = interactions.user[interactions.time == latest[interactions.user]]
    return int(np.count_nonzero(np.bincount(at_latest, minlength=interactions.users) > 1))


def _pairs(user: NDArray[np.int32], item: NDArray[np.int32], items: int) -> NDArray[np.int64]:
    """Each (user, item) pair as one number."""
    return user.astype(np.int64) * items + item
