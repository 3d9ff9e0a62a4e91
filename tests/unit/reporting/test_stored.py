"""Everything built from stored runs: what is missing is told, nothing is trained, and no data are needed."""

import csv
import json
import os
import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from fedrec.config.configuration import read_configuration
from fedrec.config.document import Document
from fedrec.config.printed import printed_numbers
from fedrec.errors import ConfigurationError, ResultError
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.runs import RunId
from fedrec.plan.targets import COVERAGE, frozen_files_of
from fedrec.reporting import stored as module
from fedrec.reporting.build import build, in_short
from fedrec.reporting.frozen import freeze, frozen_targets
from fedrec.reporting.page.files import NUMBERS_BESIDE
from fedrec.reporting.publish import PUBLISHED_FROM, publish, store_checksum
from fedrec.reporting.stored import build_named, build_stored, chosen_targets, stored_project, stored_runs
from fedrec.reporting.tables.audit.coverage import AGREES, DIVERGES, UNEXPLAINED, UNSTATED
from fedrec.runs.record import RunRecord
from fedrec.runs.store import RunStore, packed_run, unpacked_run
from tests.conftest import ROOT
from tests.made_results import ALL_METHODS, png, svg
from tests.made_runs import RULES, write_rows, write_run

TABLE = "pfedclr_table3"
COSTS = "pfedclr_table4"
"""A table without datasets."""
KEPT = "pfedclr_fig5"
SHARES = "fedrap_fig7"
"""A figure of which print says numbers."""
SEARCH = "tune_mf_pfedclr_ml_100k"
OLD = "0ld" * 21 + "0"
STATISTICS = {
    "dataset": "ml-100k", "users": 4, "items": 50, "interactions": 40, "sparsity_percent": 80.0, "repeated_pairs": 0,
    "timed": True, "tied_last_users": 0, "content": "c" * 64, "splits": {},
}  # fmt: skip


def configuration(**changes):
    content = read_configuration([ROOT / "config/config.yaml"]).content
    asked = {
        "datasets": ["ml-100k"],
        "methods": ["popularity", "fedmf"],
        "artefacts": [TABLE, KEPT, SHARES],
        "rounds": None,
    }
    causes = [
        {"cause": "dataset not to be had", "why": "no server", "dataset": ["hetrec2011"], "always": True}
    ]
    reference = {"order": [{"targets": [TABLE], "seeds": [0]}], "causes": causes}
    costs = {"gpu_costs": GPU}
    return Document("configuration", {**content, **asked, **costs, "reference": reference, **changes})


GPU = {"start": 1.0, "round": 0.01, "noise": 1.0, "million": {}, "tables": {}}


def add_run(results, method, protocol, *, code=None, settings=None, **more):
    run = RunId("pfedclr", "ml-100k", protocol, method, 0)
    record = write_run(results, run, ALL_METHODS, ranks=(1, 5, 20, 99), whole=True, **more)
    said = {"engine": "fused", "code": code or run_fingerprint(method, "fused")}
    said["settings"] = {**record.summary["settings"], **(settings or {})}
    write_checked_json(record.folder / "run.json", {**record.summary, **said})
    return RunRecord(record.folder)


def test_an_unknown_name_is_refused_before_stored_runs_are_read():
    with pytest.raises(ConfigurationError, match="there is no target 'nonsense'"):
        stored_project(configuration(), ROOT, None, "out", ["nonsense"])


def stored(folder, records, results):
    """A store of runs and of the data that they were trained on."""
    for protocol in ("clean", "published-pfedclr"):
        write_rows(results / "data", "ml-100k", protocol, [3, 4, 5, 6])
    write_checked_json(results / "data/ml-100k/statistics.json", STATISTICS)
    store = RunStore(folder)
    store.add(packed_run(record) for record in records)
    store.add_data(results)
    return store


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A store of a few runs, one of them old, and what is built of it."""
    folder = tmp_path_factory.mktemp("stored")
    results = folder / "results"
    records = [
        add_run(results, "pfedclr", "published-pfedclr", final=0.99),
        add_run(results, "pfedclr", "clean", final=0.25, code=OLD),
        add_run(results, "pfedclr[ldp=0.5]", "clean", final=0.24),
        add_run(results, "popularity", "clean", final=0.4),
        add_run(results, "fedmf", "published-pfedclr", final=0.5),
        add_run(results, "pfedclr[ldp=0.5]", "published-pfedclr", final=0.9, settings={"rate": 7.0}),
    ]
    store = stored(folder / "store", records, results)
    project = stored_project(configuration(), ROOT, store, str(folder / "out"))
    kept = [SHARES, KEPT, SEARCH]
    built_before = [project.target(name) for name in kept]
    for file in [file for target in built_before for file in (*target.files, target.plan)]:
        path = results / file
        path.parent.mkdir(parents=True, exist_ok=True)
        drawn = {".svg": svg().encode(), ".png": png(), ".pdf": b"%PDF-1.4\n%%EOF\n"}
        path.write_bytes(drawn.get(path.suffix, b"kept\n"))
    (results / f"figures/{SHARES}.csv").write_text(
        "line,dataset,protocol,runs,table,user,share_above_0.1,share_above_0.01\n"
        "FedRAP,ml-100k,published-fedrap,runs/fedrap/ml-100k/published-fedrap/one/seed0,shared,,0.05,0.9\n"
        "FedRAP,ml-100k,published-fedrap,runs/fedrap/ml-100k/published-fedrap/one/seed0,own,43,0.5,0.99\n"
        "FedRAP-L2,ml-100k,published-fedrap,runs/fedrap/ml-100k/published-fedrap/two/seed0,shared,,0.3,0.8999\n",
        encoding="utf-8",
    )
    shown = (records[0].id, records[1].id)
    assert (
        freeze(
            store.folder,
            [replace(one, runs=shown) for one in built_before],
            results,
            project.layouts,
            project.targets.names,
        )
        == kept
    )
    project = stored_project(configuration(), ROOT, store, str(folder / "out"))
    return project, build_stored(project, store, jobs=1)


def test_a_stored_run_of_another_protocol_than_its_name_stands_for_is_not_shown(built):
    project, _ = built
    store = RunStore(project.results.parent / "store")
    whole = stored_runs(store, project).runs
    ruled = replace(project.protocols["clean"], round_rule="last")
    assert ruled != project.protocols["clean"]
    edited = replace(project, protocols={**project.protocols, "clean": ruled})
    left = stored_runs(store, edited).runs
    assert whole - left == {run for run in whole if run.protocol == "clean"} != set()


def test_a_stored_run_on_an_older_split_is_not_shown(built, monkeypatch):
    project, _ = built
    store = RunStore(project.results.parent / "store")
    whole = stored_runs(store, project).runs
    dataset = next(run.dataset for run in whole if run.protocol == "clean")
    of_today = {**store.split_hashes(), (dataset, "clean"): "another"}
    monkeypatch.setattr(store, "split_hashes", lambda: of_today)
    gone = {run for run in whole if (run.dataset, run.protocol) == (dataset, "clean")}
    assert whole - stored_runs(store, project).runs == gone != set()


def rows_of_csv(project, name):
    with (project.results / f"tables/{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def test_numbers_are_those_of_the_stored_runs_and_what_is_missing_is_empty(built):
    project, names = built
    values = {
        (row["dataset"], row["protocol"], row["line"]): row["value"]
        for row in rows_of_csv(project, TABLE)
        if row["metric"] == "hr@10"
    }
    published_run = project.results / "runs/pfedclr/ml-100k/published-pfedclr/pfedclr/seed0"

    assert TABLE in names
    assert float(values["ml-100k", "published-pfedclr", "w/o LDP"]) == RunRecord(published_run).metric(
        "hr@10"
    )
    assert values["ml-100k", "published-pfedclr", "w/ LDP"] == "", "what is stored has another rate"
    assert values["ml-1m", "clean", "w/o LDP"] == "", "nothing of it is stored"
    text = (project.results / f"tables/{TABLE}.md").read_text(encoding="utf-8")
    assert "ml-100k: draw-counter has no model and only counts how often each client sampled" in text


@pytest.fixture
def named(built, tmp_path):
    """The same store, and its project that writes into an empty folder."""
    store = RunStore(built[0].results.parent / "store")
    return stored_project(configuration(), ROOT, store, str(tmp_path / "out")), store


def test_what_is_named_is_built_alone_as_among_everything(built, named, monkeypatch):
    """Other processes build it, and the process of the test has built everything."""
    monkeypatch.setattr(module, "_FEW", 0)
    whole, (project, store) = built[0], named
    (target,) = build_named(project, store, [TABLE], jobs=2)
    runs = {path.parent.relative_to(project.results).as_posix() for path in project.results.rglob("run.json")}

    assert target.name == TABLE
    for file in (*target.files, target.plan):
        assert (project.results / file).read_bytes() == (whole.results / file).read_bytes(), file
    assert runs == {run.folder for run in target.runs}
    assert {path.name for path in project.results.iterdir()} == {"data", "plan", "runs", "tables"}


def test_what_was_built_before_stays_but_for_what_is_read_again(named):
    project, store = named
    (table,) = build_named(project, store, [TABLE], jobs=1)
    old = project.results / table.runs[0].folder / "audit.json"
    old.write_text("of another run\n")
    (figure,) = build_named(project, store, [KEPT], jobs=1)

    assert all((project.results / file).is_file() for file in (*table.files, *figure.files))
    assert old.exists(), "nothing is read where a figure is kept"
    build_named(project, store, [TABLE], jobs=1)
    assert not old.exists()


def test_coverage_by_its_name_comes_with_the_tables_that_it_reads(built, named):
    whole, (project, store) = built[0], named
    targets = [target.name for target in build_named(project, store, [COVERAGE], jobs=1)]

    assert targets == [COVERAGE, TABLE, SHARES]
    for name in (COVERAGE, TABLE):
        assert rows_of_csv(project, name) == rows_of_csv(whole, name)


def test_the_page_by_its_name_comes_with_everything_that_it_shows(built):
    project, names = built

    assert {*module._with_parts(project, ["report"])} == {*names} - {SEARCH}


def test_a_paper_stands_for_all_that_can_be_built_of_it(built):
    project, _ = built
    chosen = chosen_targets(project, ["pfedclr", "verdicts", TABLE])

    assert {TABLE, COSTS, KEPT, "verdicts"} <= {*chosen.targets}
    assert len({*chosen.targets}) == len(chosen.targets)
    assert "it shows models, which are not stored" in chosen.left_out["pfedclr_fig6"]
    of_paper = {artefact.target for artefact in project.papers["pfedclr"].artefacts.values()}
    assert {*chosen.targets, *chosen.left_out} == of_paper | {"verdicts"}


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("pfedclr_tabel3", ConfigurationError, "there is no target 'pfedclr_tabel3'. Did you mean"),
        (
            "pfedclr_fig6",
            ResultError,
            "pfedclr_fig6: cannot be built from stored runs: it shows models, which are not "
            "stored. On the machine that has them: snakemake --cores 2 pfedclr_fig6, then: "
            "fedrec reference freeze pfedclr_fig6",
        ),
        ("tune_ncf_pfedclr_ml_100k", ResultError, "the trials of a search are not stored"),
        ("audit_uploads", ResultError, "--store pack --audit, then: fedrec reference add pack"),
        ("ml-1m_comparison", ResultError, "none of its runs is stored. Train them with: snakemake"),
        (
            "demo_statistics",
            ResultError,
            "demo_statistics: cannot be built from stored runs: none of its runs",
        ),
        ("demo", ResultError, "demo: cannot be built from stored runs: none of its runs"),
    ],
)
def test_what_cannot_be_built_from_stored_runs_says_why_and_what_to_do(built, name, error, message):
    project, _ = built
    with pytest.raises(error, match=re.escape(message)):
        chosen_targets(project, [TABLE, name])


def test_processes_that_build_share_the_cores(monkeypatch):
    monkeypatch.setattr(module, "usable_cores", lambda: 8)
    monkeypatch.delenv("POLARS_MAX_THREADS", raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "5")
    with module._sharing_cores(2):
        assert (os.environ["OMP_NUM_THREADS"], os.environ["POLARS_MAX_THREADS"]) == ("5", "4")
    assert os.environ["OMP_NUM_THREADS"] == "5"
    assert "POLARS_MAX_THREADS" not in os.environ
    with module._sharing_cores(20):
        assert os.environ["POLARS_MAX_THREADS"] == "1"


def test_the_table_of_a_search_is_as_it_was_built(built):
    project, names = built

    assert SEARCH in names
    assert (project.results / f"tuning/{SEARCH}.csv").read_bytes() == b"kept\n"


def test_nothing_is_left_to_fetch_or_to_train(built):
    project, _ = built

    assert project.unavailable(["ml-100k"]) == {}
    assert "the reference runs do not include it" in project.unavailable(["ml-1m"])["ml-1m"]
    assert not (project.results / "raw").exists()
    assert not list(project.results.rglob("state.safetensors"))


def test_a_table_says_which_of_its_runs_are_older_than_the_code(built):
    project, _ = built
    sentence = "Older code trained 1 of 3 runs: 1 of 3 of PFedCLR."
    tables = project.results / "tables"

    for ending in ("md", "tex", "json"):
        assert sentence in (tables / f"{TABLE}.{ending}").read_text(encoding="utf-8"), ending
    assert "Older code" not in (tables / "selected_statistics.md").read_text(encoding="utf-8")
    assert sentence in (project.results / "report/report.html").read_text(encoding="utf-8")


def test_what_was_not_run_is_named_below_a_table_and_on_the_page(built):
    """Of another rate, it counts as not run."""
    project, _ = built
    sentence = "Not shown, because not run yet: PFedCLR[ldp=0.5] on ml-100k, published."

    for ending in ("md", "tex", "json"):
        assert sentence in (project.results / f"tables/{TABLE}.{ending}").read_text(encoding="utf-8"), ending
    assert sentence in (project.results / "report/report.html").read_text(encoding="utf-8")


def test_a_further_protocol_is_shown_where_it_has_runs_and_lacks_nothing_where_it_has_none(tmp_path):
    results = tmp_path / "results"
    records = [add_run(results, method, "clean") for method in ("popularity", "fedmf")]
    for protocols, shown in (("clean",), False), (("clean", "neutral"), True):
        folder = tmp_path / "-".join(protocols)
        if shown:
            records.append(add_run(results, "fedmf", "neutral"))
        store = stored(folder, records, results)
        asked = configuration(protocols=["published", "clean", "neutral"])
        project = stored_project(asked, ROOT, store, str(tmp_path / f"{folder.name}-out"))
        build_named(project, store, ["ml-100k_comparison"], jobs=1)
        text = (project.results / "tables/ml-100k_comparison.md").read_text(encoding="utf-8")
        assert ("HR@10, neutral" in text) == shown
        assert ("popularity on ml-100k, neutral" in text) == shown, "where one has runs, others lack them"
        assert "popularity on ml-100k, published" in text


def test_of_many_lines_that_were_not_run_some_are_named():
    names = [f"line {number}" for number in range(23)]
    assert in_short(names[:2]) == "line 0; line 1"
    assert in_short(names).endswith("line 19; and 3 others")


def test_verdicts_are_on_the_page_before_everything_else(built):
    project, names = built
    page = (project.results / "report/report.html").read_text(encoding="utf-8")

    assert "verdicts" in names
    assert 0 < page.index('id="verdict') < page.index('id="comparisons"') < page.index(f'id="{TABLE}"')


def test_what_a_claim_lacks_is_to_be_trained_where_runs_are_trained_and_not_among_the_reports(built):
    project, _ = built
    commands = [row["command"] for row in rows_of_csv(project, "verdicts") if row["command"]]

    assert commands
    for command in commands:
        _, _, _, *paths = shlex.split(command)
        assert all(Path(path).is_relative_to(ROOT / "results/runs") for path in paths), command


def test_a_figure_of_the_inside_of_models_is_kept_as_it_was_drawn(built):
    project, names = built

    assert KEPT in names
    assert (project.results / f"figures/{KEPT}.csv").read_text(encoding="utf-8") == "kept\n"
    assert "Frozen: stored as it was drawn" in (project.results / f"figures/{KEPT}.txt").read_text(
        encoding="utf-8"
    )
    assert frozen_targets(project.results) == []
    files = {path.name for path in project.results.rglob(f"{KEPT}.*")}
    assert files == {f"{KEPT}.{ending}" for ending in ("csv", "svg", "txt", "json")}
    page = (project.results / "report/report.html").read_text(encoding="utf-8")
    assert f"figures/{KEPT}.svg" in page
    assert f"figures/{KEPT}.png" not in page


def test_no_row_of_a_dataset_is_kept(built):
    project, _ = built
    layouts = project.layouts

    assert "figures/x.csv" not in frozen_files_of(layouts["maps"], "x"), "it says which items a user has"
    assert "figures/x.csv" in frozen_files_of(layouts["trajectories"], "x")


def test_a_kept_figure_says_whose_models_are_older_than_the_code(built):
    project, _ = built
    caption = (project.results / f"figures/{KEPT}.txt").read_text(encoding="utf-8")

    assert "Older code trained 1 of 2 runs: 1 of 2 of PFedCLR." in caption


def test_every_printed_number_is_accounted_for(built):
    project, _ = built
    rows = rows_of_csv(project, COVERAGE)
    (ours,) = (row for row in rows if (row["table"], row["dataset"], row["metric"]) == ("Table 3", "ml-100k", "hr@10")
               and row["variant"] == "w/o LDP")  # fmt: skip
    counts = json.loads((project.results / "tables/coverage.json").read_text(encoding="utf-8"))["tables"][0][
        "rows"
    ]

    assert len(rows) == len(printed_numbers())
    # Of four users, two of whom hit, the mean could as well be another one.
    assert float(ours["tolerance"]) == pytest.approx(1.96 * 0.5 / 2)
    assert ours["standing"] == AGREES
    assert float(ours["clean"]) < float(ours["published"])
    assert {row["standing"] for row in rows if row["dataset"] == "hetrec2011"} == {"dataset not to be had"}
    text = (project.results / "tables/coverage.md").read_text(encoding="utf-8")
    assert "1,000,209" in text
    assert not re.search(r"\d[eE][+]\d+ +\|", text), "a count is no power of ten"
    (whole,) = (row for row in counts if row["paper"] == "all")
    standings = [value for key, value in whole.items() if key not in ("paper", "printed", "ours")]
    assert sum(standings) == whole["printed"] == len(printed_numbers())


def test_what_print_says_of_a_figure_stands_beside_what_its_csv_has(built):
    project, _ = built
    rows = [row for row in rows_of_csv(project, COVERAGE) if row["table"] == "text (Sec. 4.5, Fig. 7)"]

    found = {(row["method"], row["metric"][-4:]): float(row["published"]) for row in rows}
    assert found == pytest.approx(
        {
            ("FedRAP", "1e-1"): 5.0,
            ("FedRAP", "1e-2"): 90.0,
            ("FedRAP-L2", "1e-1"): 30.0,
            ("FedRAP-L2", "1e-2"): 89.99,
        }
    )
    assert [row["standing"] for row in rows] == [AGREES, UNEXPLAINED, UNEXPLAINED, AGREES]
    assert [row["runs"].split("/")[-2] for row in rows] == ["one", "one", "two", "two"]


def test_equal_numbers_with_equal_ours_stand_alike_in_all_tables_of_a_paper():
    """The same cell in two tables has one cause, or none: what explains it in one explains it in the other."""
    with (ROOT / "results/reference/tables/coverage.csv").open(encoding="utf-8", newline="") as stream:
        rows = [row for row in csv.DictReader(stream) if row["published"]]
    standings: dict[tuple[str, ...], set[str]] = {}
    for row in rows:
        cell = tuple(row[name] for name in ("paper", "dataset", "metric", "printed", "published"))
        standings.setdefault(cell, set()).add(row["standing"])
    assert {cell: found for cell, found in standings.items() if len(found) > 1} == {}


def test_what_is_to_be_read_is_put_beside_the_runs(built, tmp_path):
    project, _ = built
    store = tmp_path / "store"
    shutil.copytree(Path(project.results).parent / "store", store)
    stored = {path: path.read_bytes() for path in store.rglob("*.parquet")}
    (store / "tables").mkdir()
    (store / "tables/of_before.md").write_text("old\n")

    files = {path.relative_to(store).as_posix() for path in publish(project.results, store)}
    assert {f"tables/{TABLE}.md", "tables/coverage.csv", f"figures/{KEPT}.svg", "report/report.html"} <= files
    assert not (store / "tables/of_before.md").exists()
    assert all(path.read_bytes() == content for path, content in stored.items())
    page = store / "report/report.html"
    links = re.findall(r'<a href="(\.\./[^"#]+)', page.read_text(encoding="utf-8"))
    assert f"../tables/{TABLE}.csv" in links
    assert all((page.parent / link).exists() for link in links)
    assert '<p class="files">Files: <a href="../tables/' in page.read_text(encoding="utf-8")
    assert not re.search(r"</a>, (tex|pdf|png)|run\.json, folder", page.read_text(encoding="utf-8"))
    # Pictures are there once: those of the page are the figures beside it, which it is allowed to show.
    text = page.read_text(encoding="utf-8")
    shown = re.findall(r'<img[^>]* src="(\.\./[^"]+)"', text)
    assert shown
    assert all((page.parent / picture).is_file() for picture in shown)
    assert "img-src data: 'self' file:;" in text
    # Nobody is sent to a file of numbers that is not there.
    assert NUMBERS_BESIDE in (Path(project.results) / "report/report.html").read_text(encoding="utf-8")
    assert NUMBERS_BESIDE not in text
    assert "Its numbers are in the csv file that `fedrec reference build` writes." in text
    built_from = read_checked_json(store / PUBLISHED_FROM)["runs"]
    assert built_from == store_checksum(store)
    next(iter(stored)).unlink()
    assert built_from != store_checksum(store)


def test_nothing_built_is_nothing_to_publish(tmp_path):
    with pytest.raises(ResultError, match="has no built files"):
        publish(tmp_path, tmp_path / "store")


@pytest.fixture(scope="module")
def diverged(tmp_path_factory):
    """A store with a run that diverged late under the published protocol, and one at once under the clean."""
    folder = tmp_path_factory.mktemp("diverged")
    results = folder / "results"
    records = [
        add_run(results, "pfedclr", "published-pfedclr", final=0.99, diverged=7),
        add_run(results, "pfedclr[ldp=0.5]", "published-pfedclr", diverged=1),
        add_run(results, "pfedclr", "clean", final=0.25),
        add_run(results, "pfedclr[ldp=0.5]", "clean", final=0.24),
        add_run(results, "popularity", "clean", final=0.4),
    ]
    store = stored(folder / "store", records, results)
    return folder, store


def test_what_diverged_is_built_marked_and_counted_where_it_is_kept(diverged):
    folder, store = diverged
    project = stored_project(
        configuration(diverged="kept", artefacts=[TABLE, COSTS]), ROOT, store, str(folder / "kept")
    )
    store.unpack_data(project.results)
    for run in store.every_run():
        unpacked_run(run, project.results)
    for name in (TABLE, COSTS, COVERAGE):
        build(project.target(name), project)
    rows = {
        (row["variant"], row["metric"]): row
        for row in rows_of_csv(project, COVERAGE)
        if (row["paper"], row["table"], row["dataset"]) == ("pfedclr", "Table 3", "ml-100k")
    }
    text = (project.results / f"tables/{TABLE}.md").read_text(encoding="utf-8")

    assert {row["standing"] for row in rows.values()} == {DIVERGES}
    assert rows["w/o LDP", "hr@10"]["why"].startswith("a run behind it diverged in round 7")
    assert float(rows["w/o LDP", "hr@10"]["published"]) > 0.5
    assert rows["w/ LDP (lambda=0.5)", "hr@10"]["published"] == ""
    assert "† Diverged: w/o LDP, published, in round 7; w/ LDP, published, in round 1." in text


HITS = (1,) * 400
"""Ranks of users who are all alike, so that the least tolerance is theirs."""


@pytest.fixture(scope="module")
def explained(tmp_path_factory):
    """The coverage of a store with trials of a search, and a run that a cause names."""
    folder = tmp_path_factory.mktemp("explained")
    results, printed = folder / "results", printed_numbers()[*LDP, "w/o LDP", "hr@10"].value
    runs = {
        ("pfedclr", 0): 0.5,
        ("pfedclr[correction_spread=0.5]", 1000): printed,
        ("pfedclr[beta=0.5][correction_spread=0.7]", 1000): printed_numbers()[
            *LDP, "w/o LDP", "ndcg@10"
        ].value
        * 2,
        ("pfedclr[ldp=0.5]", 0): 0.4,
        ("pfedclr[ldp=0.5][rank=5]", 0): printed_numbers()[*LDP, "w/ LDP (lambda=0.5)", "hr@10"].value,
    }
    records = []
    for (method, seed), final in runs.items():
        run = RunId("pfedclr", "ml-100k", "published-pfedclr", method, seed)
        reached = dict.fromkeys(RULES, final)
        record = write_run(results, run, ALL_METHODS, ranks=HITS, final_at=reached, whole=True)
        said = {"engine": "fused", "code": OLD if seed == 0 else run_fingerprint(method, "fused")}
        write_checked_json(record.folder / "run.json", {**record.summary, **said})
        records.append(RunRecord(record.folder))
    store = stored(folder / "store", records, results)
    cause = {"cause": "fits with another code's setting", "why": "so", "variant": ["w/ LDP (lambda=0.5)"]}
    fitting = {**cause, "paper": ["pfedclr"], "table": ["Table 3"], "dataset": ["ml-100k", "ml-1m"]}
    reference = {
        "order": [{"targets": [TABLE], "seeds": [0]}],
        "causes": [{**fitting, "fits": "pfedclr[ldp=0.5][rank=5]"}],
    }
    asked = configuration(reference=reference, artefacts=[TABLE])
    project = stored_project(asked, ROOT, store, str(folder / "out"))
    build_named(project, store, [COVERAGE], jobs=1)
    return project


LDP = ("pfedclr", "Table 3", "ml-100k", "PFedCLR")


def test_misses_are_explained_by_stored_trials_and_by_runs_that_causes_name(explained):
    rows = {
        (row["variant"], row["metric"]): row
        for row in rows_of_csv(explained, COVERAGE)
        if (row["paper"], row["table"], row["dataset"], row["method"]) == LDP
    }
    told = {key: (row["standing"], row["why"]) for key, row in rows.items()}

    assert {row["rests_on"] for row in rows.values()} == {"checked", ""}, "its rank was fitted to print"
    # A trial with another setting than searched ones explains nothing, near as it may be.
    standing, why = told["w/o LDP", "hr@10"]
    assert standing == UNSTATED
    assert why.startswith("the paper does not state correction_spread; of 1 settings that were tried 1 reach")
    nearest = printed_numbers()[*LDP, "w/o LDP", "hr@10"].value / 2
    assert told["w/o LDP", "ndcg@10"] == (
        UNEXPLAINED,
        f"no setting that was tried reaches print (nearest of 1: {nearest:.4f})",
    )
    with_noise = "w/ LDP (lambda=0.5)"
    assert told[with_noise, "hr@10"] == ("fits with another code's setting", "so")
    standing, why = told[with_noise, "ndcg@10"]
    assert standing == UNEXPLAINED
    assert re.match(
        r"pfedclr\[ldp=0.5\]\[rank=5\] gives 0\.\d{4}; no trial of a search for correction_spread", why
    )
    assert told["degradation", "ndcg@10 relative loss"] == (
        UNEXPLAINED,
        "follows from PFedCLR w/o LDP ndcg@10",
    )


def test_the_coverage_says_which_runs_it_lacks_and_which_are_older(explained):
    text = (explained.results / "tables/coverage.md").read_text(encoding="utf-8")
    lacking = "Not shown, because not run yet: PFedCLR[ldp=0.5][rank=5] on ml-1m, published."

    assert "Older code trained 3 of 3 runs: all of PFedCLR." in text
    # What the store knows nothing of cannot be run for it.
    assert lacking not in text
    trials = [file for file in explained.target(COVERAGE).reads if "seed1000" in file]
    assert trials == [
        "runs/pfedclr/ml-100k/published-pfedclr/pfedclr@correction_spread-0.5/seed1000/run.json"
    ]


def test_where_models_are_looked_into_what_diverged_is_there_to_be_left_out_beside_others(diverged):
    folder, store = diverged
    project = stored_project(configuration(diverged="kept"), ROOT, store, str(folder / "looked"))
    (inside,) = (layout for layout in project.layouts.values() if layout.name == "exposure")
    fine, bad = (RunId("pfedclr", "ml-100k", kind, "pfedclr", 0) for kind in ("clean", "published-pfedclr"))
    other = replace(fine, method="popularity")
    inspected = replace(project.stored, measured={"exposure": frozenset([fine])})

    assert replace(project, stored=inspected).shown([bad, fine, other], inside) == [bad, fine]
    assert project.shown([bad, fine, other], inside) == []
    lacking = replace(project, stored=inspected).target("audit_exposure").content["lacking"]
    assert "popularity on ml-100k, clean" in lacking
    assert "PFedCLR on ml-100k, clean" not in lacking


def test_what_diverged_is_no_run_where_it_is_refused(diverged):
    folder, store = diverged
    project = stored_project(
        configuration(diverged="refused", artefacts=[TABLE]), ROOT, store, str(folder / "out")
    )

    assert {run.protocol for run in project.target(TABLE).runs} == {"clean"}
