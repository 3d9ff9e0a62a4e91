"""Ledger of proven-equal code: pairs of fingerprints whose code gives the same numbers, byte for byte.

A run stores the fingerprint of the code that trained it. A refactoring changes fingerprints, but no number.
`python -m tests.prove_equal` compares two commits. If nothing differs, it appends a proof to the ledger. A
stored run whose fingerprint is proven equal to that of the code here is current.

Each line is one proof. It carries a checksum of its own content and the checksum of the line before. A reader
therefore detects a line that was changed or moved, or removed before another. The checksums are no signature:
a person who computes them can write lines by hand. Two tests look for such lines. One computes the
fingerprints of both commits of every proof again. The other trains one method of one proof again; the newest
commit of the repository selects both. A forged pair of true fingerprints passes until a test trains its
method. It always passes if two rounds on the synthetic dataset show no difference.
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
    """The compared sets: runs by engine, kernel texts, machines, checksums of the evidence."""
    pairs: tuple[tuple[str, str], ...]
    """Pairs of equal fingerprints: that of the older commit, then that of the newer commit."""

    def __str__(self) -> str:
        return f"proof {self.number} of {self.date}, commits {self.before[:8]} and {self.after[:8]}"


@dataclass(frozen=True)
class Ledger:
    """All proofs, in the order in which they were made."""

    proofs: tuple[Proof, ...]
    checksum: str = _FIRST
    """The checksum of the last line."""

    @classmethod
    def read(cls, path: Path | None = None) -> "Ledger":
        """Read the ledger and check every line; `StorageError` names the first damaged line."""
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
        """The proofs that connect one fingerprint to another; None if they are not connected."""
        chains: dict[str, tuple[Proof, ...]] = {code: ()}
        waiting = [code]
        while waiting and other not in chains:
            current = waiting.pop(0)
            for neighbour, proof in self._neighbours(current):
                if neighbour not in chains:
                    chains[neighbour] = (*chains[current], proof)
                    waiting.append(neighbour)
        return chains.get(other)

    def _neighbours(self, code: str) -> Iterable[tuple[str, Proof]]:
        for proof in self.proofs:
            for pair in proof.pairs:
                if code in pair:
                    yield pair[pair[0] == code], proof

    def representatives(self) -> dict[str, str]:
        """Map every fingerprint in the ledger to one representative of all that are equal to it.

        The representative is the one that the ledger names first. So new proofs do not change it.
        """
        first_names: dict[str, str] = {}
        for proof in self.proofs:
            for before, after in proof.pairs:
                known = [first_names[code] for code in (before, after) if code in first_names]
                first = min(known, key=list(first_names).index, default=before)
                first_names |= {before: first, after: first}
                first_names |= {code: first for code, name in first_names.items() if name in known}
        return first_names


def representative(code: str) -> str:
    """The representative of all fingerprints that the ledger proves equal to `code`; else `code` itself."""
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
