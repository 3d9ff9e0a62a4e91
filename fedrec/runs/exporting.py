"""Finished runs as one archive, where they were trained: needs no more than training does."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fedrec.files.bundle import BundledFile, write_bundle
from fedrec.plan.runs import FILES
from fedrec.runs.record import RunRecord


def export_runs(folders: Mapping[str, Path], stream: IO[bytes]) -> int:
    """Write finished runs as one archive, each read and checked before; return the bytes of their files.

    `folders` has where they lie, by their folders below any results.
    """
    files: dict[BundledFile, Path] = {}
    for name, folder in folders.items():
        RunRecord(folder).check()
        files |= {BundledFile.of(f"{name}/{file}", folder / file): folder / file for file in FILES}
    write_bundle(stream, files)
    return sum(file.size for file in files)
