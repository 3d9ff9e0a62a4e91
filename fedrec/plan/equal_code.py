"""Ledger of proven-equal code: pairs of fingerprints whose code gives the same numbers, byte for byte.

A run carries the fingerprint of the code that trained it. A refactoring changes fingerprints and no number.
`python -m tests.prove_equal` compares two commits and, if nothing differs, appends a proof to the ledger.
A stored run whose fingerprint is proven equal to today's is current.

Each line is one proof. It carries the checksum of its own content and that of the line before. So every read
finds a line that was changed, moved, or removed before another. The checksums are no signature: whoever
computes them can write a line, or every line, by hand. Two tests look for such lines. One computes the
fingerprints of both commits of every proof again. The other trains one method of one proof again, which the
newest commit of the repository chooses. Between true fingerprints of unequal code a forged pair passes until
its method is chosen, and for good if two rounds on the synthetic dataset show no difference.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedrec.errors import StorageError
from fedrec.files.atomic import canonical_json, write_text
from fedrec.files.checked_json import CHECKSUM_KEY, verified, with_checksum

LEDGER = Path(__file__).with_name("equal_code.jsonl")
_FIRST = "0" * 64
"""The checksum that the first proof carries as that of the line before."""
_RESTORE = "Restore the file from the repository; only `python -m tests.prove_equal` may write it"


@dataclass(frozen=True)
class Proof:
    """A comparison of two commits that found no difference."""

    number: int
    date: str
    before: str
    """The older commit."""
    after: str
    compared: Mapping[str, Any]
    """The sets that were compared: runs by engine, kernel texts, machines, checksums of the evidence."""
    pairs: tuple[tuple[str, str], ...]
    """Fingerprints of the older commit, each with the equal one of the newer commit."""

    def __str__(self) -> str:
        return f"proof {self.number} of {self.date}, commits {self.before[:8]} and {self.after[:8]}"


@dataclass(frozen=True)
class Ledger:
    """All proofs, in the order in which they were made."""

    proofs: tuple[Proof, ...]
    checksum: str = _FIRST
    """That of the last line."""

    @classmethod
    def read(cls, path: Path | None = None) -> "Ledger":
        """Read the ledger and check every line; `StorageError` names the first one that is not right."""
        path = path or LEDGER
        proofs: list[Proof] = []
        checksum = _FIRST
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        for number, line in enumerate(lines, start=1):
            try:
                entry = verified(line)
                if entry.pop("previous") != checksum:
                    raise ValueError("it does not follow from the line before it")
                proofs.append(_proof(entry))
                if proofs[-1].number != number:
                    raise ValueError(f"its number is {proofs[-1].number}")
            except (ValueError, KeyError, TypeError) as error:
                what = f"{error} is missing" if isinstance(error, KeyError) else str(error)
                raise StorageError(f"{path}, line {number}: {what}. {_RESTORE}.") from error
            checksum = str(json.loads(line)[CHECKSUM_KEY])
        return cls(tuple(proofs), checksum)

    def append(self, proof: Proof, path: Path | None = None) -> None:
        """Write the ledger with one more proof."""
        path = path or LEDGER
        entry = {**vars(proof), "number": len(self.proofs) + 1, "previous": self.checksum}
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        write_text(path, f"{text}{canonical_json(with_checksum(entry))}\n")

    def chain(self, code: str, other: str) -> tuple[Proof, ...] | None:
        """The proofs that lead from one fingerprint to another; None where there are none."""
        reached: dict[str, tuple[Proof, ...]] = {code: ()}
        waiting = [code]
        while waiting and other not in reached:
            present = waiting.pop(0)
            for neighbour, proof in self._neighbours(present):
                if neighbour not in reached:
                    reached[neighbour] = (*reached[present], proof)
                    waiting.append(neighbour)
        return reached.get(other)

    def _neighbours(self, code: str) -> Iterable[tuple[str, Proof]]:
        for proof in self.proofs:
            for pair in proof.pairs:
                if code in pair:
                    yield pair[pair[0] == code], proof

    def representatives(self) -> dict[str, str]:
        """Of every fingerprint in the ledger, the one that stands for all that are equal to it.

        It is the one that the ledger names first, so that it stays the same while proofs are added.
        """
        found: dict[str, str] = {}
        for proof in self.proofs:
            for before, after in proof.pairs:
                known = [found[code] for code in (before, after) if code in found]
                first = min(known, key=list(found).index, default=before)
                found |= {before: first, after: first}
                found |= {code: first for code, one in found.items() if one in known}
        return found


def representative(code: str) -> str:
    """The fingerprint that stands for all that the ledger proves equal to `code`; itself where none is."""
    return _representatives().get(code, code)


def is_equal_code(code: object, other: str | None) -> bool:
    """Whether two fingerprints are the same, or the ledger proves their code equal."""
    if not isinstance(code, str) or other is None:
        return False
    return code == other or representative(code) == representative(other)


@cache
def _representatives() -> dict[str, str]:
    return Ledger.read().representatives()


def _proof(entry: Mapping[str, Any]) -> Proof:
    pairs = tuple((str(before), str(after)) for before, after in entry["pairs"])
    commits = {key: str(entry[key]) for key in ("date", "before", "after")}
    return Proof(int(entry["number"]), compared=dict(entry["compared"]), pairs=pairs, **commits)
