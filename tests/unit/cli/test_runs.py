"""`fedrec runs`: the runs behind a table or one row of it, where each lies, and what is wrong with a question."""

import pytest

import fedrec
from fedrec.cli.main import main
from fedrec.errors import ResultError
from fedrec.plan.runs import RunId
from fedrec.reporting.table_runs import find_row, read_rows
from fedrec.reporting.tables.table import csv_text
from fedrec.runs.store import RunStore, packed_run
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_runs import write_run

FOLDERS = [RunId("pfedclr", "ml-100k", "clean", "fedmf", seed).folder for seed in (0, 1, 2)]


@pytest.fixture
def made(tmp_path, monkeypatch):
    """Results and a store, each with two of three runs and with a table of them; two runs have the same name."""
    results, store = tmp_path / "results", RunStore(tmp_path / "store")
    seeds = [RunId("pfedclr", "ml-100k", "clean", "fedmf", seed) for seed in (0, 1, 2)]
    for run in seeds[:2]:
        write_run(results, run, METHODS, ranks=(20, 20))
    store.add(packed_run(write_run(tmp_path / "other", run, METHODS, ranks=(1, 1))) for run in seeds[1:])
    about = {"paper": "pfedclr", "metric": "hr@10"}
    rows = [
        {**about, "claim": "a-helps", "clean": -0.3128, "runs": FOLDERS[:1], "runs_against": FOLDERS[1:]},
        {**about, "claim": "a-helps-b", "clean": 0.25, "runs": FOLDERS[1:2]},
        {**about, "claim": "none", "clean": None},
    ]
    for folder, name in ((results, "verdicts"), (store.folder, "verdicts_pfedclr")):
        (folder / "tables").mkdir()
        (folder / f"tables/{name}.csv").write_text(csv_text(rows), encoding="utf-8")
    configuration = tmp_path / "config.yaml"
    configuration.write_text(f"results: {results}\n", encoding="utf-8")
    monkeypatch.chdir(ROOT)
    return tmp_path


def runs(made, *arguments):
    options = ("--configfile", str(made / "config.yaml"), "--store", str(made / "store"))
    return main(["runs", *options, *arguments])


def listed(text):
    return [tuple(line.split()) for line in text.splitlines() if line.startswith("  ")]


def test_a_row_leads_to_its_runs_and_these_open(made, capsys):
    assert runs(made, "verdicts", "A-HELPS", "hr@10") == 0
    out = capsys.readouterr().out
    assert "verdicts.csv, row 1  pfedclr" in out
    found = listed(out)
    assert found == [
        ("results", str(made / "results" / FOLDERS[0])),
        ("results", str(made / "results" / FOLDERS[1])),
        ("missing", str(made / "results" / FOLDERS[2])),
    ]
    assert out.index("runs:") < out.index("runs_against:")
    assert [fedrec.open_run(path).id.seed for _, path in found[:2]] == [0, 1]


def test_a_table_of_the_reference_leads_to_the_stored_runs_though_one_was_trained_here_too(made, capsys):
    assert runs(made, "verdicts_pfedclr", "1") == 0
    found = listed(capsys.readouterr().out)
    assert found == [
        ("missing", str(made / "store" / FOLDERS[0])),
        ("reference", str(made / "store" / FOLDERS[1])),
        ("reference", str(made / "store" / FOLDERS[2])),
    ]
    assert [fedrec.open_run(path).user_ranks().rank.tolist() for _, path in found[1:]] == [[1, 1], [1, 1]]


def test_a_table_built_from_the_reference_leads_to_the_runs_unpacked_beside_it(
    made, tmp_path, monkeypatch, capsys
):
    beside = tmp_path / "built"
    (tmp_path / "store/tables").rename(tmp_path / "tables")
    write_run(beside, RunId("pfedclr", "ml-100k", "clean", "fedmf", 2), METHODS, ranks=(1, 1))
    (tmp_path / "tables").rename(beside / "tables")
    monkeypatch.setattr("fedrec.cli.runs.BUILT_REFERENCE", beside)
    assert runs(made, "verdicts_pfedclr", "1") == 0
    assert listed(capsys.readouterr().out) == [
        ("missing", str(beside / FOLDERS[0])),
        ("reference", str(made / "store" / FOLDERS[1])),
        ("reference", str(beside / FOLDERS[2])),
    ]


def test_a_row_is_named_by_number_or_by_a_number_in_it(made, capsys):
    for row in ("1", "-0.31"):
        assert runs(made, "verdicts", row) == 0
        assert len(listed(capsys.readouterr().out)) == 3


def test_a_table_has_the_runs_of_all_its_rows_each_once(made, capsys):
    assert runs(made, "verdicts") == 0
    out = capsys.readouterr().out
    assert "3 rows" in out
    assert [where for where, _ in listed(out)] == ["results", "results", "results", "missing"]


def test_a_row_without_runs_says_so(made, capsys):
    assert runs(made, "verdicts", "none") == 0
    assert "No run is named here." in capsys.readouterr().out


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (("verdict",), ["there is no target 'verdict'", "Did you mean 'verdicts'?"]),
        (
            ("fedem_fig4",),
            [
                "fedem_fig4: is not built here. Build it with: fedrec reference build",
                "fedrec reference build fedem_fig4",
            ],
        ),
        (("verdicts", "xyz"), ["no row has 'xyz' in its cells"]),
        (("verdicts", "4"), ["there is no row 4. Give a number from 1 to 3"]),
        (("verdicts", "helps"), ["2 rows match 'helps'", "\n  1  a-helps", "\n  2  a-helps-b"]),
    ],
)
def test_a_wrong_question_is_answered_by_what_to_ask(made, capsys, asked, words):
    assert runs(made, *asked) == 1
    told = capsys.readouterr().err
    assert all(word in told for word in words), told


def test_a_csv_that_names_no_runs_is_refused(tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n", encoding="utf-8")
    with pytest.raises(ResultError, match="no column names runs"):
        read_rows(tmp_path / "a.csv")


def test_the_reference_has_the_runs_behind_a_verdict():
    rows = read_rows(ROOT / "results/reference/tables/verdicts.csv")
    row = find_row(rows, ["pfedclr-beats-federated", "ml-100k", "hr@10"])
    store = RunStore(ROOT / "results/reference")
    assert set(row.runs["runs"]) <= set(store.names_on("ml-100k"))
    untuned = [name for name in row.runs["runs"] if "/clean/pfedclr/" in name]
    run = fedrec.open_run(store.folder / untuned[-1])
    assert (run.id.method, run.protocol, len(run.ranks)) == ("pfedclr", "clean", 943)
