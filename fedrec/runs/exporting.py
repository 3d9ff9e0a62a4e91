"""Finished runs as one archive, where they were trained: needs no more than training does."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fedrec.files.run_archive import write_archive
from fedrec.plan.runs import FILES
from fedrec.runs.record import RunRecord


def export_runs(folders: Mapping[str, Path], stream: IO[bytes]) -> int:
    """Write finished runs as one archive, each read and checked before; return the bytes of their files.

    `folders` has where they lie, by their folders below any results.
    """
    for folder in folders.values():
        RunRecord(folder).check()
    return write_archive(
        stream, {f"{name}/{file}": folder / file for name, folder in folders.items() for file in FILES}
    )
