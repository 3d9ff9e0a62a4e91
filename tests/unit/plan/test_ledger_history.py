"""Proofs of the ledger hold for the commits that they name: one that was written by hand does not."""

import shutil
import subprocess

import pytest

from fedrec.plan.equal_code import Ledger, Proof
from tests.core import core_and
from tests.made_data import ROOT
from tests.prove_equal.history import History, chosen, missing_commits, repeated, unfounded_pairs
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


@pytest.mark.parametrize(
    "part", core_and([slice(-1, None)], [slice(-1)]), ids=["the newest proof", "all others"]
)
def test_every_pair_of_the_ledger_is_what_its_commits_compute(history, part):
    ledger = Ledger.read()
    assert list(unfounded_pairs(ledger, history, ledger.proofs[part])) == []


@pytest.mark.matrix
def test_one_method_of_one_proof_holds_again(history, tmp_path):
    """Another commit of the repository chooses another one. `make test` compares fingerprints alone."""
    proof, key = chosen(Ledger.read(), history, history.commit("HEAD"))
    assert list(repeated(proof, key, history, prepared(tmp_path))) == []


@pytest.mark.matrix
def test_every_proof_is_chosen_at_some_commit_with_each_of_its_methods_and_plug_ins(history):
    ledger = Ledger.read()
    choices = [chosen(ledger, history, str(head)) for head in range(1500 * len(ledger.proofs))]
    assert {proof.number for proof, _ in choices} == {proof.number for proof in ledger.proofs}
    for one in ledger.proofs:
        names = {key.rpartition("/")[0] for proof, key in choices if proof == one}
        assert names == set(one.compared["methods"])
        assert not any(key.endswith("/loop") for _, key in choices)


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


def test_what_is_trained_again_is_not_chosen_by_the_line(made, tmp_path):
    """A line that lists other methods, or other evidence, is tested by the methods that have its pairs."""
    history, (one, other, _) = made
    path = tmp_path / "ledger.jsonl"
    pair = fingerprint(history, one), fingerprint(history, other)
    ledger_of(path, one, other, pair)
    compared = {"methods": ["popularity"], "runs": {"fused": 1}, "evidence": ["f" * 64]}
    Ledger.read(path).append(Proof(0, "2027-01-01", one, other, compared, (pair,)), path)
    choices = [chosen(Ledger.read(path), history, head) for head in "abcdefgh"]
    assert {(proof.number, key) for proof, key in choices} == {(1, "fedmf/fused"), (2, "fedmf/fused")}


def test_the_loop_is_trained_again_where_a_proof_has_nothing_else(made, tmp_path):
    history, (one, other, _) = made
    codes = (history.fingerprints(commit, ["fedmf"], ["loop"])["fedmf/loop"] for commit in (one, other))
    compared = {"methods": ["fedmf"], "runs": {"loop": 1, "fused": 1}}
    path = tmp_path / "ledger.jsonl"
    Ledger.read(path).append(Proof(0, "2026-11-18", one, other, compared, (tuple(codes),)), path)
    assert chosen(Ledger.read(path), history, "head")[1] == "fedmf/loop"


def test_a_name_that_is_no_commit_is_an_error(made):
    with pytest.raises(SystemExit, match="has no commit no-such-name"):
        made[0].commit("no-such-name")


@pytest.mark.matrix
def test_a_proof_of_unequal_code_does_not_hold_again(made, tmp_path):
    history, (one, other, third) = made
    data = prepared(tmp_path / "data")
    path = tmp_path / "ledger.jsonl"
    for pair in ((one, other), (one, third)):
        ledger = ledger_of(path, *pair)
    true, forged = ledger.proofs
    assert list(repeated(true, "fedmf/fused", history, data)) == []
    (difference,) = repeated(forged, "fedmf/fused", history, data)
    assert "fedmf clean fused has other numbers" in difference
