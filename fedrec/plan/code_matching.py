"""Decide whether a stored code fingerprint is current. No other module compares fingerprints of runs.

A fingerprint is current if the code here has the same, or if the ledger proves both equal.
"""

from collections.abc import Mapping
from typing import Any

from fedrec.config.modules import modules_of
from fedrec.errors import ConfigurationError
from fedrec.plan.equal_code import Ledger, Proof, is_equal_code
from fedrec.plan.fingerprint import run_fingerprint


class CodeMatcher:
    """Compares stored code fingerprints with the current code; computes each current fingerprint once."""

    def __init__(self) -> None:
        self._fingerprints: dict[tuple[str, ...], str | None] = {}

    def is_current(self, fingerprint: object, method: str, engine: str) -> bool:
        """Whether `fingerprint`, stored with a run of `method` on `engine`, is current."""
        return is_equal_code(fingerprint, self._current(method, engine))

    def is_current_run(self, summary: Mapping[str, Any], method: str | None = None) -> bool:
        """Whether the `code` and `engine` of a run.json are current, for its own or another `method`."""
        return self.is_current(summary.get("code"), method or summary["method"], str(summary.get("engine")))

    def proofs(self, summary: Mapping[str, Any]) -> tuple[Proof, ...] | None:
        """The proofs that the code of a run.json equals the code here; None if there is no such proof.

        They are empty if the fingerprints are the same.
        """
        current = self._current(summary["method"], str(summary.get("engine")))
        return None if current is None else Ledger.read().chain(str(summary.get("code")), current)

    def _current(self, method: str, engine: str) -> str | None:
        """The current fingerprint; None where the engine or the method does not exist."""
        try:
            key = (*modules_of(method), engine)
        except ConfigurationError:
            # The method's file was deleted or renamed after the run was trained.
            return None
        if key not in self._fingerprints:
            try:
                self._fingerprints[key] = run_fingerprint(method, engine)
            except FileNotFoundError:
                self._fingerprints[key] = None
        return self._fingerprints[key]
