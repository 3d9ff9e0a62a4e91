"""The users that a paper counts as inactive."""

from pathlib import Path

import polars as pl

from fedrec.config.papers import Artefact


def inactive_users(data: Path, artefact: Artefact) -> dict[str, list[int]]:
    """By dataset, the users whose interactions are between two bounds, as the paper counts; the upper is out.

    `artefact.options["users"]` has the bounds; a dataset that is not there has no users.
    """
    users = {}
    for dataset, (least, below) in artefact.options.get("users", {}).items():
        path = data / dataset / "interactions.parquet"
        if path.is_file():
            counts = pl.read_parquet(path, columns=["user"]).group_by("user").len()
            chosen = counts.filter((pl.col("len") >= least) & (pl.col("len") < below))
            users[dataset] = sorted(chosen["user"].to_list())
    return users
