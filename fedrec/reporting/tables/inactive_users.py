"""The users that a paper counts as inactive."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fedrec.config.papers import Artefact
from fedrec.data.interactions import read_interactions_file
from fedrec.errors import ResultError
from fedrec.files.parquet import read_table
from fedrec.runs.store import ACTIVITY


def inactive_users(data: Path, artefact: Artefact) -> dict[str, list[int]]:
    """The users by dataset with a number of interactions from the lower bound to below the upper.

    `artefact.options["users"]` has the paper's bounds. A dataset that is not available has no users.
    """
    users = {}
    for dataset, (least, below) in artefact.options.get("users", {}).items():
        if active := activity_of(data / dataset):
            user, count = active
            users[dataset] = user[(count >= least) & (count < below)].tolist()
    return users


def activity_of(folder: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]] | None:
    """The users of a dataset and their numbers of interactions, from the interactions or from a store's
    count.

    None if the dataset's folder has neither.
    """
    if (folder / "interactions.parquet").is_file():
        user, count = np.unique(users_of_interactions(folder / "interactions.parquet"), return_counts=True)
        return user.astype(np.int64), count.astype(np.int64)
    if not (folder / ACTIVITY).is_file():
        return None
    table, _ = read_table(folder / ACTIVITY, columns=("user", "interactions"))
    return table["user"].to_numpy(), table["interactions"].to_numpy()


def users_of_interactions(path: Path) -> NDArray[np.int32]:
    """The user of every interaction of the dataset that the folder of `path` names."""
    interactions = read_interactions_file(path)
    if interactions.dataset != path.parent.name:
        raise ResultError(
            f"{path}: has the interactions of {interactions.dataset}. Delete it, then build it again with: "
            f"snakemake --cores 2 '{path}'"
        )
    return interactions.user
