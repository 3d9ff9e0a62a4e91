"""Training from Python: the run's name and folder, and what is refused."""

from dataclasses import replace

import numpy as np
import pytest

import fedrec
from fedrec.config.method_entries import Setting, SourcedValue
from fedrec.config.methods import Methods, with_settings
from fedrec.errors import ConfigurationError, FedrecError
from tests.conftest import ROOT
from tests.federations import METHODS, planted_blocks
from tests.trained_runs import made_results, shared_results

FOLDER = "runs/pfedclr/made/clean/fedmf@d-8@rounds-2/seed0"


@pytest.fixture(autouse=True)
def _files(monkeypatch):
    monkeypatch.setenv("FEDREC_METHODS", str(ROOT / "config/methods.yaml"))


@pytest.fixture
def data(tmp_path_factory):
    return (
        shared_results(tmp_path_factory, "trained from python", planted_blocks, users=12, items=60)
        / "data/made"
    )


def test_a_run_lies_where_the_workflow_puts_it_and_is_taken_when_it_is_finished(data, capsys):
    run = fedrec.train(data, "fedmf", d=np.int64(8), settings={"rounds": 2}, progress=False)
    assert run.folder == data.parents[1] / FOLDER
    assert run.settings["d"] == 8
    assert fedrec.open_run(run.folder).id.folder == FOLDER
    capsys.readouterr()
    again = fedrec.train(str(data), "fedmf[rounds=2][d=8]")
    assert "finished" in capsys.readouterr().err
    assert again.summary == run.summary


def test_a_setting_that_the_paper_has_anyway_is_no_part_of_the_name(data, tmp_path):
    usual_d = METHODS["fedmf"].settings["d"].papers
    d = usual_d["pfedclr"].value if "pfedclr" in usual_d else METHODS["fedmf"].settings["d"].default.value
    run = fedrec.train(data, "fedmf", d=d, rounds=1, out=tmp_path / "mine")
    assert (run.folder, run.id.method) == (tmp_path / "mine", "fedmf[rounds=1]")


@pytest.mark.parametrize(
    ("method", "settings", "said"),
    [
        ("fedmf", {"lr": 0.1}, "Did you mean 'rate'"),
        ("fedmf", {"d": "8,rate=1"}, "fedmf: d=8,rate=1 is not of type integer: .* integer from 1 to 4096"),
        ("fedmf[d=8]", {"d": 16}, "sets d=8, and d=16"),
        ("fedmff", {}, "Did you mean 'fedmf'"),
    ],
)
def test_settings_that_cannot_be_are_refused_before_anything_is_read(method, settings, said):
    with pytest.raises(ConfigurationError, match=said):
        fedrec.train("nowhere", method, settings=settings)


def test_one_setting_given_twice_is_refused():
    with pytest.raises(ConfigurationError, match="Set it once"):
        fedrec.train("nowhere", "fedmf", settings={"d": 8}, d=8)


def test_a_file_is_part_of_no_name():
    entry = METHODS["fedmf"]
    given = Setting("start of items", "path", SourcedValue(None, "ours"), "fedmf", nullable=True)
    methods = Methods({**METHODS, "fedmf": replace(entry, settings={**entry.settings, "vectors": given})})
    name, files = with_settings(methods, "fedmf[d=8]", {"vectors": "vectors.parquet", "d": "8"})
    assert (name, files) == ("fedmf[d=8]", ("vectors=vectors.parquet",))


def test_a_dataset_in_a_folder_of_another_name_is_refused(tmp_path):
    made_results(tmp_path, planted_blocks, users=12, items=60)
    folder = (tmp_path / "data/made").rename(tmp_path / "data/other")
    with pytest.raises(
        FedrecError, match=r"other: the folder must have the name of its dataset, made\. Rename it to made\.$"
    ):
        fedrec.train(folder, "fedmf", rounds=1)
