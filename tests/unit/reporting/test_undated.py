"""The note below tables of datasets without times."""

import pytest

from fedrec.files.checked_json import read_checked_json
from fedrec.plan.runs import RunId
from fedrec.plan.targets import Target, files_of
from fedrec.reporting.tables.table import ReportColumn, ReportTable, write_forms
from fedrec.reporting.undated import add_undated_notes, undated_note
from tests.made_project import project_with

COLUMNS = [ReportColumn(f"hr@10_{protocol}", protocol) for protocol in ("published", "clean")]


def table(part, clean):
    rows = [{"hr@10_published": 0.6, "hr@10_clean": clean}]
    return ReportTable(f"About {part}.", COLUMNS, rows, ("Another note.",), part)


def notes_of(folder, tables, datasets):
    """The notes of each table of a target with runs on datasets."""
    runs = tuple(RunId("pfedclr", name, "clean", "mf", 0) for name in datasets)
    write_forms(folder / "tables/one", [], tables)
    target = Target("one", "table", "metrics", files_of("table", "one"), runs, (), {}, "f" * 64)
    add_undated_notes(target, project_with(folder))
    return [shown["notes"] for shown in read_checked_json(folder / "tables/one.json")["tables"]]


def test_only_tables_of_datasets_without_times_whose_clean_is_above_have_it(tmp_path):
    tables = [table("filmtrust", 0.9), table("filmtrust-exact", 0.5), table("ml-100k", 0.9)]
    note = undated_note("filmtrust")
    assert notes_of(tmp_path, tables, ("filmtrust", "ml-100k")) == [
        ["Another note.", note],
        ["Another note."],
        ["Another note."],
    ]
    for form in ("md", "tex"):
        assert (tmp_path / f"tables/one.{form}").read_text(encoding="utf-8").count(note) == 1


@pytest.mark.parametrize(("clean", "more"), [(0.9, 1), (0.6, 0), (None, 0)])
def test_tables_of_a_target_on_one_dataset_need_not_name_it(tmp_path, clean, more):
    (notes,) = notes_of(tmp_path, [table("", clean)], ("filmtrust",))
    assert len(notes) == 1 + more


def test_nothing_is_said_where_a_table_has_rows_of_several_datasets(tmp_path):
    (notes,) = notes_of(tmp_path, [table("values", 0.9)], ("filmtrust", "ml-100k"))
    assert notes == ["Another note."]
