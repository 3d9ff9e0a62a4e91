"""Proofs of the ledger hold for the commits that they name: one that was written by hand does not."""

import shutil
import subprocess

import pytest

from fedrec.plan.equal_code import Ledger, Proof
from tests.made_data import ROOT
from tests.prove_equal.history import History, missing_commits, repeated, unfounded_pairs
from tests.same_numbers import prepared

METHOD = "fedrec/methods/fedmf.py"


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """The commits that the ledger of this repository names."""
    if shutil.which("git") is None or not (ROOT / ".git").exists():
        pytest.skip("this is no clone of the repository, or there is no git")
    found = History(ROOT, tmp_path_factory.mktemp("history"))
    missing = missing_commits(Ledger.read(), found)
    if missing and found.is_shallow():
        pytest.skip(f"this clone is shallow and lacks commit {missing[0][:12]}")
    assert not missing, f"proofs of the ledger name commits that this clone lacks: {missing}"
    return found


def test_every_pair_of_the_ledger_is_what_its_commits_compute(history):
    assert list(unfounded_pairs(Ledger.read(), history)) == []


def test_part_of_the_newest_proof_holds_again(history, tmp_path):
    for proof in Ledger.read().proofs[-1:]:
        assert list(repeated(proof, history, prepared(tmp_path))) == []


def git(folder, *words):
    identity = ("-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false")
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A repository of three commits: today's code, the same in other words, and code with another number."""
    if shutil.which("git") is None:
        pytest.skip("there is no git")
    folder = tmp_path_factory.mktemp("repository")
    for name in ("fedrec", "config"):
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    git(folder, "init", "-q")
    text = (folder / METHOD).read_text()
    commits = []
    for version in (text, f"{text}\n_UNUSED = 1\n", _with_other_numbers(text)):
        (folder / METHOD).write_text(version)
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "version")
        commits.append(git(folder, "rev-parse", "HEAD"))
    return History(folder, tmp_path_factory.mktemp("trees")), commits


def _with_other_numbers(text):
    old = "dot(w.Q[items], w.p)"
    assert text.count(old) == 1
    return text.replace(old, f"2 * {old}")


def ledger_of(path, before, after, *pairs):
    compared = {"methods": ["fedmf"], "runs": {"fused": 1}, "evidence": ["0" * 64]}
    Ledger.read(path).append(Proof(0, "2026-11-18", before, after, compared, pairs), path)
    return Ledger.read(path)


def fingerprint(history, commit):
    return history.fingerprints(commit, ["fedmf"], ["fused"])["fedmf/fused"]


def test_a_pair_that_the_commits_compute_is_founded(made, tmp_path):
    history, (one, other, _) = made
    pair = fingerprint(history, one), fingerprint(history, other)
    ledger = ledger_of(tmp_path / "ledger.jsonl", one, other, pair)
    assert missing_commits(ledger, history) == []
    assert list(unfounded_pairs(ledger, history)) == []


def test_a_forged_pair_is_found_though_its_checksums_fit(made, tmp_path):
    history, (one, other, third) = made
    codes = [fingerprint(history, commit) for commit in (one, other, third)]
    path = tmp_path / "ledger.jsonl"
    # The third commit's fingerprint is a true one, of another commit.
    for pair in ((codes[0], codes[1]), ("f" * 64, codes[1]), (codes[0], codes[2]), (codes[1], codes[0])):
        ledger = ledger_of(path, one, other, pair)
    assert [text.partition(" of ")[0] for text in unfounded_pairs(ledger, history)] == [
        "proof 2", "proof 3", "proof 4"
    ]  # fmt: skip


def test_a_method_that_a_commit_lacks_has_no_pair(made, tmp_path):
    history, (one, other, _) = made
    path = tmp_path / "ledger.jsonl"
    compared = {"methods": ["no-such-method"], "runs": {"fused": 1}}
    Ledger.read(path).append(Proof(0, "2026-11-18", one, other, compared, (("a", "b"),)), path)
    assert len(list(unfounded_pairs(Ledger.read(path), history))) == 1


def test_a_commit_that_does_not_exist_is_missing(made, tmp_path):
    history, (one, *_) = made
    assert missing_commits(ledger_of(tmp_path / "ledger.jsonl", one, "e" * 40), history) == ["e" * 40]


@pytest.mark.matrix
def test_a_proof_of_unequal_code_does_not_hold_again(made, tmp_path):
    history, (one, other, third) = made
    data = prepared(tmp_path / "data")
    path = tmp_path / "ledger.jsonl"
    for pair in ((one, other), (one, third)):
        ledger = ledger_of(path, *pair)
    true, forged = ledger.proofs
    assert list(repeated(true, history, data)) == []
    (difference,) = repeated(forged, history, data)
    assert "fedmf clean fused has other numbers" in difference
