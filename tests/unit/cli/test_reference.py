"""`fedrec reference`: runs packed, added and shown from the command line."""

from dataclasses import replace

import pytest

from fedrec.cli.main import main
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.runs import RunId
from fedrec.runs.store import RunStore
from tests.conftest import ROOT
from tests.made_results import ALL_METHODS
from tests.made_runs import write_run

RUN = RunId("pfedclr", "ml-100k", "clean", "fedmf", 0)


@pytest.fixture(autouse=True)
def at_home(monkeypatch):
    monkeypatch.chdir(ROOT)


def results_of(folder, code=None, **more):
    """A folder of results with one run, of today's code or another."""
    record = write_run(folder, RUN, ALL_METHODS, whole=True, **more)
    said = {"engine": "fused", "code": code or run_fingerprint("fedmf", "fused")}
    write_checked_json(record.folder / "run.json", {**record.summary, **said})
    return folder


def test_packed_results_are_added_like_results(tmp_path, capsys):
    results, pack, store = (tmp_path / name for name in ("results", "pack", "store"))
    results_of(results)

    assert main(["reference", "pack", str(results), "--store", str(pack)]) == 0
    assert main(["reference", "add", str(pack), "--store", str(store)]) == 0
    assert main(["reference", "add", str(results), "--store", str(store)]) == 0
    said = capsys.readouterr().out
    assert f"{store}: 1 added" in said
    assert f"{store}: 0 added, 0 replaced, 1 same" in said
    (kept,), (whole,) = (RunStore(folder).runs_on("ml-100k").values() for folder in (store, pack))
    assert whole.has_exact_ranks
    assert kept.has_exact_ranks


def test_of_trials_ranks_among_all_items_are_not_kept(tmp_path):
    results, store = tmp_path / "results", tmp_path / "store"
    for seed in (0, 1000):
        write_run(results, replace(RUN, seed=seed), ALL_METHODS, whole=True)
    assert main(["reference", "add", str(results), "--store", str(store)]) == 0
    assert {run.id.seed: run.has_exact_ranks for run in RunStore(store).every_run()} == {0: True, 1000: False}


def test_what_is_inside_models_is_looked_at_once(tmp_path, capsys, monkeypatch):
    results, store = tmp_path / "results", tmp_path / "store"
    results_of(results)
    monkeypatch.setattr(
        "fedrec.audit.model_measurements.measure_model", lambda run: {"uploads": {"on": run.device}}
    )

    for _ in range(2):
        words = ["reference", "pack", str(results), "--store", str(store), "--audit", "--device", "meta"]
        assert main(words) == 0
    assert capsys.readouterr().err == f"measuring {RUN.folder}\n"
    (run,) = RunStore(store).every_run()
    assert run.audit == {"uploads": {"on": "meta"}}


def test_a_run_of_older_code_does_not_take_the_place_of_a_newer_one(tmp_path, capsys):
    store = tmp_path / "store"
    for name, code, final in (("old", "0ld", 0.1), ("new", None, 0.2), ("older", "0lder", 0.3)):
        results = results_of(tmp_path / name, code, final=final)
        assert main(["reference", "add", str(results), "--store", str(store)]) == 0
    said = capsys.readouterr().out

    assert f"replaced: {RUN.folder}, the same ranks" in said
    assert "Retrained: 1 runs. 1 give every user the same rank." in said
    assert f"kept: {RUN.folder}" in said
    assert main(["reference", "show", "--store", str(store)]) == 0
    said = capsys.readouterr().out
    assert "ml-100k: 1 runs, 1 protocols, 1 seeds; 0 of older code" in said
    assert "all: 1 runs; 0 of older code" in said


def test_stored_runs_of_deleted_methods_and_other_protocols_are_shown_and_added(tmp_path, capsys):
    store = tmp_path / "store"
    for seed, changes in enumerate(
        ({}, {"method": "deleted"}, {"protocol": {"round_rule": "of another day"}})
    ):
        results = results_of(tmp_path / str(seed))
        there = results / RUN.folder
        said = read_checked_json(there / "run.json")
        said |= {"seed": seed, "protocol": said["protocol"] | changes.pop("protocol", {}), **changes}
        folder = results / RunId.of_summary(said).folder
        folder.parent.mkdir(parents=True, exist_ok=True)
        there.rename(folder)
        write_checked_json(folder / "run.json", said)
        assert main(["reference", "add", str(results), "--store", str(store)]) == 0
    assert main(["reference", "show", "--store", str(store)]) == 0
    said = capsys.readouterr().out
    assert (
        "ml-100k: 3 runs, 1 protocols, 3 seeds; 1 of older code; 2 with other settings or protocols" in said
    )
    assert [record.proofs for record in RunStore(store).records()] == [None, (), ()]


def test_a_run_that_was_looked_into_afterwards_was_not_trained_again(tmp_path, capsys, monkeypatch):
    results, store, pack = (tmp_path / name for name in ("results", "store", "pack"))
    results_of(results)
    monkeypatch.setattr(
        "fedrec.audit.model_measurements.measure_model", lambda run: {"uploads": {"on": run.device}}
    )
    assert main(["reference", "add", str(results), "--store", str(store)]) == 0
    assert main(["reference", "pack", str(results), "--store", str(pack), "--audit"]) == 0
    assert main(["reference", "add", str(pack), "--store", str(store)]) == 0
    (run,) = RunStore(store).every_run()

    assert run.audit
    assert "retrained" not in capsys.readouterr().out


def test_where_there_is_no_store_it_gets_the_command_that_makes_one(tmp_path, capsys):
    assert main(["reference", "build", "--store", str(tmp_path)]) == 1
    assert "fedrec reference add results" in capsys.readouterr().err


def test_what_is_built_does_not_go_where_the_runs_are(tmp_path, capsys):
    store = tmp_path / "store"
    assert main(["reference", "add", str(results_of(tmp_path / "results")), "--store", str(store)]) == 0
    assert main(["reference", "build", "--store", str(store), "--out", str(store)]) == 1
    assert "holds the stored runs." in capsys.readouterr().err
    assert RunStore.is_at(store)


@pytest.mark.parametrize("names", [[], ["pfedclr_table4"]])
def test_what_is_built_does_not_take_the_place_of_trained_runs(tmp_path, capsys, monkeypatch, names):
    store = tmp_path / "store"
    assert main(["reference", "add", str(results_of(tmp_path / "results")), "--store", str(store)]) == 0
    # Nothing may be built, whatever is asked: these are the results of whoever runs the tests.
    monkeypatch.setattr("fedrec.reporting.stored.build_stored", None)
    monkeypatch.setattr("fedrec.reporting.stored.build_named", None)
    assert main(["reference", "build", *names, "--store", str(store), "--out", "results"]) == 1
    assert (
        "--out results: holds runs trained here, which stored runs would replace." in capsys.readouterr().err
    )


def test_one_table_is_built_by_its_name_and_its_files_are_reported(tmp_path, capsys):
    store, out = tmp_path / "store", tmp_path / "out"
    assert main(["reference", "add", str(results_of(tmp_path / "results")), "--store", str(store)]) == 0
    capsys.readouterr()
    words = ["reference", "build", "--store", str(store), "--out", str(out)]

    assert main([*words, "pfedclr_table4"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told == [f"{out}/tables/pfedclr_table4.{ending}" for ending in ("csv", "md", "tex", "json")]
    assert {str(path) for path in (out / "tables").iterdir()} == {*told}


def test_what_is_published_is_everything(tmp_path, capsys):
    words = ["reference", "build", "pfedclr_table4", "--publish", "--store", str(tmp_path)]
    assert main(words) == 1
    assert "not pfedclr_table4 only. Omit the names of targets, or --publish." in capsys.readouterr().err
