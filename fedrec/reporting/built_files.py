"""Errors of missing or damaged files that a page, table or figure is built from."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedrec.errors import ResultError


@contextmanager
def reading_built(path: Path) -> Iterator[None]:
    """Turn errors of reading a built file into a `ResultError` with the command that builds it."""
    try:
        yield
    except FileNotFoundError:
        raise ResultError(f"{path}: no such file. Build it with: snakemake --cores 2 '{path}'") from None
    except (ValueError, TypeError) as error:
        raise damaged(path, str(error)) from error
    except KeyError as error:
        raise damaged(path, f"it has no {error}") from error


def damaged(path: Path, why: str) -> ResultError:
    """Make the error of a damaged file."""
    return ResultError(
        f"{path}: the file is damaged: {why}. Delete it, then build it again with: "
        f"snakemake --cores 2 '{path}'"
    )
