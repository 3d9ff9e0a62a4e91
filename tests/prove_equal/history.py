"""Checks proofs of the ledger against the commits that they name: a pair that was written by hand is found."""

import hashlib
import io
import json
import os
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from fedrec.native.cache import CACHE
from fedrec.plan.equal_code import Ledger, Proof
from tests.prove_equal import recorder

_ROUNDS = 2
_SLOW = "loop"
"""The engine that takes up to half a minute a round: its runs are not trained again where a proof has others."""
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
_TRAINING = """
import json, sys
from pathlib import Path
import fedrec, recorder, torch
tree, data, out = map(Path, sys.argv[2:])
assert Path(fedrec.__file__).is_relative_to(tree), fedrec.__file__
torch.set_num_threads(1)
print(json.dumps(dict(recorder.runs(json.loads(sys.argv[1]), tree, data, out, recorder.LineTracer(tree)))))
"""
"""Traces no lines, and compiles a kernel once for both commits: either would take longer than the training."""


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

    def commit(self, name: str) -> str:
        """The hash of the commit that a name stands for."""
        found = self._git("rev-parse", "--verify", f"{name}^{{commit}}")
        if found.returncode:
            raise SystemExit(f"{self.repository}: has no commit {name}. Name another one.")
        return found.stdout.decode().strip()

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
            asked = json.dumps([sorted(methods), sorted(engines)])
            self._fingerprints[key] = self._printed(commit, _FINGERPRINTS, asked)
        return self._fingerprints[key]

    def training(self, commit: str, method: str, engine: str, data: Path) -> dict[str, dict[str, str]]:
        """The hashes of the numbers that the code of a commit trains."""
        kind = {"engine": engine, "names": [method], "protocols": ["clean"]}
        kind["rounds"] = 1 if engine == _SLOW else _ROUNDS
        plan = json.dumps({"device": "cpu", "methods": [method.partition("[")[0]], "trainings": [kind]})
        with tempfile.TemporaryDirectory() as out:
            return self._printed(commit, _TRAINING, plan, str(self.tree(commit)), str(data), out)

    def _printed(self, commit: str, script: str, *words: str) -> Any:
        """What a script prints as JSON that imports the package of a commit."""
        tree = self.tree(commit)
        path = os.pathsep.join((str(tree), str(Path(recorder.__file__).parent)))
        environment = {**os.environ, "PYTHONPATH": path, CACHE: str(self.folder / "kernels")}
        command = [sys.executable, "-c", script, *words]
        done = subprocess.run(command, cwd=tree, env=environment, check=True, stdout=subprocess.PIPE)
        return json.loads(done.stdout)

    def _git(self, *words: str) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(["git", *words], cwd=self.repository, capture_output=True, check=False)


def missing_commits(ledger: Ledger, history: History) -> list[str]:
    """The commits of proofs that the repository lacks."""
    commits = dict.fromkeys(commit for proof in ledger.proofs for commit in (proof.before, proof.after))
    return [commit for commit in commits if not history.has(commit)]


def unfounded_pairs(ledger: Ledger, history: History, proofs: Sequence[Proof] | None = None) -> Iterator[str]:
    """Every pair of the ledger's proofs, or of some of them, that the code of its commits does not compute."""
    for proof in ledger.proofs if proofs is None else proofs:
        founded = _trained_by(proof, ledger, history).values()
        for pair in sorted(set(proof.pairs).difference(founded)):
            yield f"{proof}: no method has the fingerprints {pair[0][:12]} and {pair[1][:12]} there"


def chosen(ledger: Ledger, history: History, head: str) -> tuple[Proof, str]:
    """A proof, and a method with an engine of which it has the pair, as `method/engine`.

    The newest commit `head` decides, which no line of the ledger contains: who writes a line cannot choose
    for later commits, and each proof, method and plug-in is chosen at some of them.
    """
    proof = min(ledger.proofs, key=lambda proof: _lot(head, str(proof.number)))
    names = [key for key, pair in _trained_by(proof, ledger, history).items() if pair in proof.pairs]
    quick = [key for key in names if not key.endswith(f"/{_SLOW}")]
    return proof, min(quick or names, key=lambda key: _lot(head, key))


def repeated(proof: Proof, key: str, history: History, data: Path) -> Iterator[str]:
    """Train a `method/engine` of a proof at both commits, and give every difference."""
    method, _, engine = key.rpartition("/")
    old, new = (history.training(commit, method, engine, data) for commit in (proof.before, proof.after))
    for name in sorted(old.keys() | new.keys()):
        if name not in old or old[name] != new.get(name) or "failed" in old[name]:
            yield f"{proof}: {name} has other numbers, or failed: {old.get(name)}, {new.get(name)}"


def _trained_by(proof: Proof, ledger: Ledger, history: History) -> dict[str, tuple[str, str]]:
    """The fingerprints at both commits of every `method/engine` that any proof compared, where they differ."""
    methods = {name for one in ledger.proofs for name in one.compared["methods"]}
    engines = {name for one in ledger.proofs for name in one.compared["runs"]}
    old, new = (history.fingerprints(commit, methods, engines) for commit in (proof.before, proof.after))
    return {key: (old[key], new[key]) for key in sorted(old.keys() & new.keys()) if old[key] != new[key]}


def _lot(*words: str) -> str:
    return hashlib.sha256(" ".join(words).encode()).hexdigest()
