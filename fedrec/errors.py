"""Errors a user can act on.

Every message says what is wrong, where, and what to do about it. The command line prints
the message alone; a traceback means a defect in fedrec.
"""

import difflib
from collections.abc import Iterable, Sequence


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The nearest of `known`, in capitals or not; None where none is near."""
    names: dict[str, str] = {}
    for name in known:
        names.setdefault(name.casefold(), name)
    close = difflib.get_close_matches(word.casefold(), names, n=1)
    return names[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the nearest of `known`, or nothing where none is near."""
    near = nearest(word, known)
    return f" Did you mean '{near}'?" if near else ""


def first_lines(lines: Sequence[str], most: int, indent: str = "  ") -> list[str]:
    """The first lines of many, and in one more line how many are left out."""
    more = len(lines) - most
    return [*lines[:most], *([f"{indent}... and {more} more"] if more > 0 else [])]


class FedrecError(Exception):
    """Base of all errors that are the input's or the machine's fault, not the program's."""


class ConfigurationError(FedrecError):
    """A configuration file or a setting is wrong."""


class SourceError(FedrecError):
    """A raw file is not available from a source, or from any."""


class DataError(FedrecError):
    """The content of a raw file is not what its catalogue entry describes."""


class SplitError(FedrecError):
    """The interactions cannot be split as the protocol asks."""


class StorageError(FedrecError):
    """A file could not be written or read back whole."""


class FederationError(FedrecError):
    """A method asked for something a federation does not allow."""


class DivergenceError(FedrecError):
    """Training left the finite numbers."""


class OutOfMemoryError(FedrecError):
    """A client does not fit into the available memory."""


class MemoryTakenError(OutOfMemoryError):
    """A run does not fit into the memory that is free: it may, where others hold less of it."""


class DeviceLostError(FedrecError):
    """A GPU takes no more work of this process, for an error of its own or of another that shares it."""


class PeerError(FedrecError):
    """Another process that trains the same run has ended, so this one cannot continue."""


class NoCompilerError(FedrecError):
    """Kernels cannot be compiled here, or this one cannot: work is done without it."""


class ResultError(FedrecError):
    """A result that is asked for is missing, or not whole."""


class ComparisonError(FedrecError):
    """Numbers that are to be compared do not belong together, or are none."""


class StoppedError(KeyboardInterrupt):
    """A signal stopped a command, which says what was kept of its work; `status` is the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
