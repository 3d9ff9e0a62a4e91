"""The papers' tables and figures as configuration, and the runs behind them."""

import pytest

from fedrec.config.papers import artefacts_of, load_papers
from fedrec.config.printed import printed, printed_numbers
from fedrec.config.protocol import short_name
from fedrec.errors import ConfigurationError
from fedrec.plan.runs import RunId, minimal, papers_in, run_of, shortened
from fedrec.plan.selection import runs_of
from tests.conftest import ROOT
from tests.federations import METHODS


@pytest.fixture(scope="module")
def papers():
    return load_papers(ROOT / "config/papers")


@pytest.fixture(scope="module")
def every(papers):
    return artefacts_of(papers, papers)


def test_a_setting_that_says_nothing_new_leaves_the_name():
    assert minimal(METHODS, "pfedclr[rank=2]", "pfedclr", "ml-100k") == "pfedclr"
    assert minimal(METHODS, "pfedclr[rank=4][beta=0.01]", "pfedclr", "ml-100k") == "pfedclr[rank=4]"
    # What is the default depends on the paper and on the dataset.
    assert minimal(METHODS, "fedem[alpha=1.1]", "fedem", "ml-100k") == "fedem"
    assert minimal(METHODS, "fedem[alpha=1.1]", "fedem", "ml-1m") == "fedem[alpha=1.1]"


def test_papers_share_clean_runs_of_equal_settings():
    # Popularity has the same settings everywhere; the published split is each paper's own.
    assert run_of(METHODS, "plgc", "ml-100k", "clean", "popularity", 0).paper == "pfedclr"
    assert run_of(METHODS, "plgc", "ml-100k", "published", "popularity", 0).paper == "plgc"
    # FedMF has not: PFedCLR and FedEM differ in their rates.
    assert run_of(METHODS, "fedem", "ml-100k", "clean", "fedmf", 0).paper == "fedem"


def test_a_run_knows_its_folder():
    run = RunId("pfedclr", "ml-100k", "clean", "fedmf[d=8]", 3)
    assert run.folder == "runs/pfedclr/ml-100k/clean/fedmf@d-8/seed3"


def test_the_same_methods_for_fewer_rounds():
    names = ["popularity", "fedmf", "fedmf[d=8]", "fedmf[rounds=7]"]
    assert shortened(METHODS, names, "pfedclr", "ml-100k", 5) == [
        "popularity", "fedmf[rounds=5]", "fedmf[d=8][rounds=5]", "fedmf[rounds=7]",
    ]  # fmt: skip
    assert shortened(METHODS, names, "pfedclr", "ml-100k", None) == names


def test_artefacts_are_found_by_paper_and_by_name_and_each_once(papers):
    found = artefacts_of(papers, ["pfedclr_table1", "pfedclr"])
    assert [one.target for one in found] == [
        "pfedclr_table1", *(f"pfedclr_{name}" for name in papers["pfedclr"].artefacts if name != "table1"),
    ]  # fmt: skip


def test_an_unknown_artefact_is_an_error_with_a_hint(papers):
    with pytest.raises(ConfigurationError, match="Did you mean 'pfedclr_table1'"):
        artefacts_of(papers, ["pfedclr_tabel1"])


def test_every_line_is_a_run_that_can_be_or_is_made_of_lines_before_it(every):
    for artefact in every:
        labels = []
        for line in artefact.lines:
            if line.run is None:
                parts = [*(line.gain or ()), *line.mean]
                assert set(parts) <= {*labels, "best federated", "PFedCLR"}, (artefact.target, parts)
            labels.append(line.label)
        runs_of(artefact, METHODS, [0])


def test_every_printed_number_of_a_shown_table_is_looked_up_by_some_line(every):
    """A misspelt method or variant would leave its column empty without a word."""
    shown = {(one.paper, one.printed): one for one in every if one.layout == "metrics"}
    for artefact in shown.values():
        wanted = {
            (key[3], key[4])
            for key in printed_numbers()
            if key[:2] == (artefact.paper, artefact.printed) and key[5].split()[0] in artefact.metrics
        }
        assert wanted <= {line.printed for line in artefact.lines}, artefact.target


def test_sweeps_vary_what_they_say(papers):
    sweep = papers["pfedclr"].artefacts["fig7"]
    found = runs_of(sweep, METHODS, [0, 1], [name for name in sweep.datasets if name != "ml-100k"])
    assert [line.value for line in sweep.lines] == [1, 2, 4, 6, 8, 10, 12]
    assert [run.method for run in found[1, "ml-100k", "clean"]] == ["pfedclr", "pfedclr"]
    assert found[0, "ml-100k", "published-pfedclr"][1] == RunId(
        "pfedclr", "ml-100k", "published-pfedclr", "pfedclr[rank=1]", 1
    )
    assert not [key for key in found if key[1] != "ml-100k"]


def test_a_split_that_cannot_be_had_takes_its_runs_with_it(papers):
    sweep = papers["pfedrec"].artefacts["fig5"]
    found = runs_of(sweep, METHODS, [0], ["ml-100k/published-pfedrec"])
    assert (0, "ml-100k", "published-pfedrec") not in found
    assert (0, "ml-100k", "clean") in found
    assert (0, "ml-1m", "published-pfedrec") in found


def test_all_papers_together_need_about_as_many_runs_as_they_report(papers, every):
    runs = {run for artefact in every for group in runs_of(artefact, METHODS, [0]).values() for run in group}
    published_runs = [run for run in runs if short_name(run.protocol) == "published"]
    assert 500 < len(published_runs) < 700
    assert {run.paper for run in published_runs} == set(papers)


def test_every_part_of_movielens_1m_has_its_printed_numbers(papers):
    one = papers["fedrap"].artefacts["table7"]
    (line,) = one.lines
    found = [printed("fedrap", one.printed, name, line.printed, "hr@10").value for name in one.datasets]
    assert found == [1.0, 1.0, 0.9020, 1.0, 0.9990, 0.8260, 0.9851, 0.9398, 0.9186]
    assert len({run for runs in runs_of(one, METHODS, [0]).values() for run in runs}) == 18


def test_a_printed_number():
    found = printed("pfedclr", "Table 1", "ml-100k", ("PFedCLR", "federated"), "hr@10")
    assert (found.value, found.sd, found.unit) == (0.9989, None, "fraction")
    assert printed("pfedclr", "Table 1", "ml-100k", ("PFedCLR", "nowhere"), "hr@10") is None
    assert printed("pfedrec", "Table 1", "ml-100k", ("PFedRec", "federated"), "hr@10").sd is not None


def test_papers_come_in_the_order_of_their_files_and_share_runs_in_the_same_order(papers):
    assert list(papers) == ["pfedclr", "pfedrec", "fedem", "plgc", "fedrap"]
    assert papers_in(METHODS) == tuple(papers)
