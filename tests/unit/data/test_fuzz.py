"""Three damaged inputs of every format and archive; `python -m tests.fuzz` tries many more."""

import polars as pl

from fedrec.data import archives
from tests import fuzz

KINDS = len(fuzz.formats()) + len(fuzz.ARCHIVES)


def test_what_is_damaged_is_read_as_written_or_refused():
    outcomes, wrong = fuzz.fuzz(3 * KINDS, seed=0)
    assert not wrong
    counted = {outcome: sum(counts[outcome] for counts in outcomes.values()) for outcome in fuzz.OUTCOMES}
    assert sum(counted.values()) == 3 * KINDS
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
