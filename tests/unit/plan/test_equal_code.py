"""The ledger of proven-equal code: it follows chains of proofs, and a changed line does not pass."""

import json

import pytest

from fedrec.errors import StorageError
from fedrec.files.checked_json import CHECKSUM_KEY, with_checksum
from fedrec.plan import equal_code
from fedrec.plan.code_matching import CodeMatcher
from fedrec.plan.equal_code import LEDGER, Ledger, Proof, is_equal_code, representative
from fedrec.plan.fingerprint import run_fingerprint


def proof(*pairs):
    return Proof(0, "2026-11-18", "b" * 40, "a" * 40, {"runs": {"fused": 2}}, pairs)


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    """A ledger in which a, b and c are equal by two proofs, and x and y by the second one."""
    path = tmp_path / "equal_code.jsonl"
    Ledger.read(path).append(proof(("a", "b")), path)
    Ledger.read(path).append(proof(("b", "c"), ("x", "y")), path)
    _use(path, monkeypatch)
    return path


def _use(path, monkeypatch):
    monkeypatch.setattr(equal_code, "LEDGER", path)
    equal_code._representatives.cache_clear()


@pytest.fixture(autouse=True)
def _forget_afterwards():
    yield
    equal_code._representatives.cache_clear()


def test_the_ledger_of_the_package_is_whole():
    assert [proof.number for proof in Ledger.read().proofs] == list(range(1, len(Ledger.read().proofs) + 1))
    assert LEDGER.is_file()


@pytest.mark.usefixtures("ledger")
def test_equality_follows_chains_in_both_directions_and_ends_at_their_ends():
    assert is_equal_code("a", "c")
    assert is_equal_code("c", "a")
    assert is_equal_code("z", "z")
    assert not is_equal_code("a", "x")
    assert not is_equal_code("a", None)
    assert not is_equal_code(None, "a")


@pytest.mark.usefixtures("ledger")
def test_the_fingerprint_that_the_ledger_names_first_stands_for_all_that_are_equal():
    """Snakemake notes it as a parameter: it must stay the same while proofs are added."""
    assert [representative(code) for code in "abcxyz"] == ["a", "a", "a", "x", "x", "z"]


def test_two_chains_that_meet_become_one(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for pair in (("a", "b"), ("p", "q"), ("q", "b")):
        Ledger.read(path).append(proof(pair), path)
    assert len(set(Ledger.read(path).representatives().values())) == 1


def test_a_later_proof_of_older_code_changes_no_representative(tmp_path):
    path = tmp_path / "ledger.jsonl"
    for pair in (("b", "c"), ("a", "b")):
        Ledger.read(path).append(proof(pair), path)
    assert Ledger.read(path).representatives() == {"a": "b", "b": "b", "c": "b"}


def test_a_chain_names_its_proofs(ledger):
    read = Ledger.read(ledger)
    assert [one.number for one in read.chain("a", "c")] == [1, 2]
    assert read.chain("a", "a") == ()
    assert read.chain("a", "y") is None


def test_a_run_of_proven_equal_code_is_current_and_says_by_which_proof(tmp_path, monkeypatch):
    path = tmp_path / "ledger.jsonl"
    today = run_fingerprint("fedmf", "fused")
    Ledger.read(path).append(proof(("old", today)), path)
    _use(path, monkeypatch)
    run = {"method": "fedmf", "engine": "fused", "code": "old"}
    assert CodeMatcher().is_current_run(run)
    assert [str(one) for one in CodeMatcher().proofs(run)] == [
        "proof 1 of 2026-11-18, commits bbbbbbbb and aaaaaaaa"
    ]
    assert CodeMatcher().proofs(run | {"code": today}) == ()
    assert CodeMatcher().proofs(run | {"code": "older"}) is None
    assert not CodeMatcher().is_current_run(run | {"code": "older"})


def _changed(line, **values):
    content = {key: value for key, value in json.loads(line).items() if key != CHECKSUM_KEY}
    return json.dumps(with_checksum(content | values))


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda lines: [lines[0].replace('"a"', '"q"', 1), lines[1]], "line 1: its content does not match"),
        (lambda lines: lines[1:], "line 1: it does not follow from the line before"),
        (lambda lines: lines[::-1], "line 1: it does not follow from the line before"),
        # Sealed again by hand: the line after it does not follow any more.
        (lambda lines: [_changed(lines[0], date="2027-01-01"), lines[1]], "line 2: it does not follow"),
        (lambda lines: [*lines, _changed(lines[1], number=3)], "line 3: it does not follow"),
        (lambda lines: [_changed(lines[0], number=7), lines[1]], "line 1: its number is 7"),
        (lambda lines: ["{}", *lines], "line 1: it has no checksum"),
        (lambda lines: ["no json", *lines], "line 1: "),
    ],
)  # fmt: skip
def test_a_line_that_was_changed_removed_moved_or_added_by_hand_is_refused(ledger, edit, message):
    ledger.write_text("".join(f"{line}\n" for line in edit(ledger.read_text().splitlines())))
    with pytest.raises(StorageError, match=message):
        Ledger.read(ledger)
