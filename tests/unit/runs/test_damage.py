"""Damaged results are refused, or do no harm; `python -m tests.damage` tries more of it."""

from tests.damage import tried


def test_no_damaged_result_is_taken_for_good(tmp_path):
    found, wrong = tried(tmp_path, count=48, seed=0)
    assert wrong == []
    # Four damages of each kind of file; a checkpoint alone is never refused, but left aside.
    assert {name: counts.total() for name, counts in found.items()} == dict.fromkeys(found, 4)
    assert [name for name, counts in found.items() if not counts["clear"]] == ["checkpoint"]
