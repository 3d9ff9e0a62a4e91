"""Damaged inputs of every format and archive: one of each, three in `make test-all`; `python -m tests.fuzz` tries many more."""

import polars as pl
import pytest

from fedrec.data import archives
from tests import fuzz
from tests.core import core_and

KINDS = len(fuzz.formats()) + len(fuzz.ARCHIVES)


@pytest.mark.parametrize("of_each", core_and([1], [3]))
def test_what_is_damaged_is_read_as_written_or_refused(of_each):
    outcomes, wrong = fuzz.fuzz(of_each * KINDS, seed=0)
    assert not wrong
    counted = {outcome: sum(counts[outcome] for counts in outcomes.values()) for outcome in fuzz.OUTCOMES}
    assert sum(counted.values()) == of_each * KINDS
    assert min(counted["read as written"], counted["refused with line"], counted["refused whole file"]) > 0


def test_a_reader_that_is_wrong_is_caught(monkeypatch):
    monkeypatch.setattr(fuzz, "formats", lambda: {"own csv": fuzz.OWN["own csv"]})
    monkeypatch.setattr(fuzz, "ARCHIVES", ())
    read = fuzz.read_interactions
    monkeypatch.setattr(fuzz, "read_interactions", lambda *file: read(*file).head(-1))
    assert any("read other rows than are written" in line for line in fuzz.fuzz(20, seed=0)[1])
    monkeypatch.setattr(fuzz, "read_interactions", lambda path, _: pl.read_csv(path))
    wrong = fuzz.fuzz(20, seed=0)[1]
    assert any("are malformed" in line for line in wrong)


def test_an_archive_that_is_not_checked_is_caught(monkeypatch):
    monkeypatch.setattr(fuzz, "formats", dict)
    monkeypatch.setattr(fuzz, "ARCHIVES", ("zip",))
    monkeypatch.setattr(archives, "_BROKEN", ())
    assert any("BadZipFile" in line for line in fuzz.fuzz(20, seed=0)[1])
