"""Errors a user can act on.

Every message states what is wrong, where, and what to do. The command line prints only the message; a
traceback means a defect in fedrec.
"""

import difflib
from collections.abc import Iterable, Sequence


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The most similar of `known`, ignoring case; None if none is similar."""
    names: dict[str, str] = {}
    for name in known:
        names.setdefault(name.casefold(), name)
    close = difflib.get_close_matches(word.casefold(), names, n=1)
    return names[close[0]] if close else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` Did you mean 'x'?` for the most similar of `known`; empty if none is similar."""
    near = nearest(word, known)
    return f" Did you mean '{near}'?" if near else ""


def first_lines(lines: Sequence[str], most: int, indent: str = "  ") -> list[str]:
    """The first lines of many, and a last line with the number of the others."""
    more = len(lines) - most
    return [*lines[:most], *([f"{indent}... and {more} more"] if more > 0 else [])]


class FedrecError(Exception):
    """Base of all errors that the input or the machine causes, not the program."""


class ConfigurationError(FedrecError):
    """A configuration file or a setting is wrong."""


class SourceError(FedrecError):
    """A raw file is not available from a source, or from any."""


class DataError(FedrecError):
    """The content of a raw file differs from its catalogue entry."""


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
    """A run does not fit into the free memory, but may if other processes use less."""


class DeviceLostError(FedrecError):
    """A GPU refuses work of this process, after an error here or in another process that shares it."""


class PeerError(FedrecError):
    """Another process that trains the same run has ended, so this one cannot continue."""


class NoCompilerError(FedrecError):
    """A kernel cannot be compiled here; fedrec works without it."""


class ResultError(FedrecError):
    """A requested result is missing or incomplete."""


class ComparisonError(FedrecError):
    """Numbers cannot be compared: they are of different things, or not finite."""


class StoppedError(KeyboardInterrupt):
    """A signal stopped a command; the message names the stored work, `status` is the exit status."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status
