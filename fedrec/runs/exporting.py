"""Export finished runs as one archive, with the packages that training needs."""

from collections.abc import Mapping
from pathlib import Path
from typing import IO

from fedrec.files.run_archive import write_archive
from fedrec.plan.runs import FILES
from fedrec.runs.record import RunRecord


def export_runs(folders: Mapping[str, Path], stream: IO[bytes]) -> int:
    """Check finished runs and write them as one archive; return the size of their files in bytes.

    `folders` has the path of each run by its name, the folder below the results.
    """
    for folder in folders.values():
        RunRecord(folder).check()
    return write_archive(
        stream, {f"{name}/{file}": folder / file for name, folder in folders.items() for file in FILES}
    )
