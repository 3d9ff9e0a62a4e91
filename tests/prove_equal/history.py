"""Checks proofs of the ledger against the commits that they name: a pair that was written by hand is found."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrec.plan.equal_code import Ledger, Proof
from tests.prove_equal.comparison import pairs
from tests.prove_equal.recording import recording

_ROUNDS = 2
_FINGERPRINTS = """
import json, sys
from pathlib import Path
import fedrec
from fedrec.errors import ConfigurationError
from fedrec.plan.fingerprint import run_fingerprint
assert Path(fedrec.__file__).is_relative_to(Path.cwd()), fedrec.__file__
methods, engines = json.loads(sys.argv[1])
found = {}
for name in methods:
    for engine in engines:
        try:
            found[f"{name}/{engine}"] = run_fingerprint(name, engine)
        except ConfigurationError:
            pass  # This commit has no such method.
print(json.dumps(found))
"""


@dataclass(frozen=True)
class History:
    """The commits of a repository, unpacked below a folder where they are asked for."""

    repository: Path
    folder: Path
    _fingerprints: dict[tuple[str, ...], dict[str, str]] = field(default_factory=dict)

    def has(self, commit: str) -> bool:
        """Whether the repository has a commit."""
        return self._git("cat-file", "-e", f"{commit}^{{commit}}").returncode == 0

    def is_shallow(self) -> bool:
        """Whether the repository is a clone without its older commits."""
        return self._git("rev-parse", "--is-shallow-repository").stdout.strip() == b"true"

    def tree(self, commit: str) -> Path:
        """The package and the configuration of a commit."""
        folder = self.folder / commit[:12]
        if not folder.is_dir():
            packed = self._git("archive", commit, "fedrec", "config")
            packed.check_returncode()
            with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
                archive.extractall(folder, filter="data")
        return folder

    def fingerprints(self, commit: str, methods: Collection[str], engines: Collection[str]) -> dict[str, str]:
        """What the code of a commit computes as fingerprints, by `method/engine`."""
        key = (commit, *sorted(methods), *sorted(engines))
        if key not in self._fingerprints:
            tree = self.tree(commit)
            command = [sys.executable, "-c", _FINGERPRINTS, json.dumps([sorted(methods), sorted(engines)])]
            environment = {**os.environ, "PYTHONPATH": str(tree)}
            done = subprocess.run(command, cwd=tree, env=environment, check=True, capture_output=True)
            self._fingerprints[key] = json.loads(done.stdout)
        return self._fingerprints[key]

    def _git(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *words], cwd=self.repository, capture_output=True, check=False)


def missing_commits(ledger: Ledger, history: History) -> list[str]:
    """The commits of proofs that the repository lacks."""
    commits = dict.fromkeys(commit for proof in ledger.proofs for commit in (proof.before, proof.after))
    return [commit for commit in commits if not history.has(commit)]


def unfounded_pairs(ledger: Ledger, history: History) -> Iterator[str]:
    """Every pair of a proof that the code of its commits does not compute."""
    methods = {name for proof in ledger.proofs for name in proof.compared["methods"]}
    engines = {name for proof in ledger.proofs for name in proof.compared["runs"]}
    for proof in ledger.proofs:
        commits = (proof.before, proof.after)
        old, new = ({"fingerprints": history.fingerprints(commit, methods, engines)} for commit in commits)
        for pair in sorted(set(proof.pairs) - set(pairs(old, new))):
            yield f"{proof}: no method has the fingerprints {pair[0][:12]} and {pair[1][:12]} there"


def repeated(proof: Proof, history: History, data: Path) -> Iterator[str]:
    """Train one method of a proof at both commits, and give every difference; the evidence decides which method."""
    names = sorted(name for name in proof.compared["methods"] if "+" not in name)
    method = names[int(proof.compared["evidence"][0][:8], 16) % len(names)]
    commits = (proof.before, proof.after)
    old, new = (
        recording(history.tree(commit), _plan(method), data, history.folder)["runs"] for commit in commits
    )
    for key in sorted(old.keys() | new.keys()):
        if _is_different(old.get(key), new.get(key)):
            yield f"{proof}: {key} has other numbers, or failed: {old.get(key)}, {new.get(key)}"


def _plan(method: str) -> dict[str, Any]:
    training = {"engine": "fused", "names": [method], "protocols": ["clean"], "rounds": _ROUNDS}
    checksum = hashlib.sha256(method.encode()).hexdigest()
    return {
        "device": "cpu", "methods": [method], "trainings": [training], "kernels": [], "checksum": checksum
    }  # fmt: skip


def _is_different(old: Mapping[str, str] | None, new: Mapping[str, str] | None) -> bool:
    return old is None or old != new or "failed" in old
