"""The workflow as a user runs it, on small made datasets, from nothing to tables."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from tests.conftest import ROOT, entry

# A call ends no sooner than the span, so it is short here.
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "2", "--max-jobs-per-timespan", "1000/1s"]
QUICK = ["popularity", "draw-counter"]
AUDIT = {"methods": QUICK, "switches": ["pool"], "uploads": ["fedmf"]}
"""An audit that trains steps and attacks uploads."""


class Project:
    """A copy of the project with a catalogue of its own: alpha and beta at hand, gamma nowhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("workflow", "config", "profiles", "fedrec"):
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        shutil.copy(ROOT / "Snakefile", folder)
        (folder / "mirror").mkdir()
        for number, name in enumerate(("alpha", "beta")):
            rows = [(u, (u * 11 + s * 7 + number) % 260, 5, s) for u in range(40) for s in range(10)]
            self.write(f"mirror/{name}.csv", "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows))
        self.set_entries(
            alpha=entry("alpha.csv"),
            beta=entry("beta.csv", papers=["fedrap"]),
            gamma=entry("gamma.csv"),
            demo=yaml.safe_load((ROOT / "config/datasets.yaml").read_text())["demo"],
        )
        # Two methods that are quick and not the same: what is tested here is the workflow. The audit trains nothing.
        self.configure(
            datasets=["alpha", "beta"], methods=QUICK, demo_rounds=2, rounds=2,
            audit={"methods": ["popularity"], "switches": ["round"], "uploads": []},
        )  # fmt: skip

    def write(self, path, text):
        (self.folder / path).write_text(text)

    def set_entries(self, **entries):
        self.entries = entries
        self.write("config/datasets.yaml", yaml.safe_dump(entries, sort_keys=False))

    def configure(self, **changes):
        config = yaml.safe_load((self.folder / "config/config.yaml").read_text()) | changes
        self.write("config/config.yaml", yaml.safe_dump(config))

    def environment(self):
        # The copied sources, not the installed ones, so that tests may edit them.
        return os.environ | {"FEDREC_MIRROR": str(self.folder / "mirror"), "PYTHONPATH": str(self.folder)}

    def snakemake(self, *arguments, succeeds=True):
        outcome = subprocess.run(
            [*SNAKEMAKE, *arguments],
            cwd=self.folder,
            env=self.environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert (outcome.returncode == 0) == succeeds, outcome.stdout
        return outcome.stdout

    def planned(self, *targets):
        """The jobs a dry run would do, as (rule, dataset), without the targets themselves."""
        said = self.snakemake("--dry-run", *targets)
        job = r"^(?:local)?rule (\w+):$(?:\n    .*)*?\n    wildcards: .*?(?:dataset|selection)=([\w-]+)"
        return set(re.findall(job, said, flags=re.MULTILINE))

    def trained(self, *targets):
        """The runs a dry run would train, as (paper, dataset, kind)."""
        said = self.snakemake("--dry-run", *targets)
        return set(re.findall(r"wildcards: paper=(\w+), dataset=([\w-]+), kind=([\w-]+), method=", said))

    def exists(self, path):
        return (self.folder / path).exists()

    def files(self):
        return {
            path.relative_to(self.folder).as_posix()
            for path in (self.folder / "results").rglob("*")
            if path.is_file()
        }


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A project whose `all`, `datasets` and `demo` were built."""
    project = Project(tmp_path_factory.mktemp("built"))
    project.configure(audit=AUDIT)
    project.snakemake("all", "datasets", "demo")
    return project


@pytest.fixture
def copy_of_built(built, tmp_path):
    """A copy of the built project, free to be changed; times are kept."""
    folder = tmp_path / "copy"
    shutil.copytree(built.folder, folder, symlinks=True)
    project = object.__new__(Project)
    project.folder, project.entries = folder, built.entries
    return project


@pytest.fixture
def fresh(tmp_path):
    return Project(tmp_path / "fresh")


def test_all_that_was_asked_for_is_there(built):
    for dataset, paper in (("alpha", "pfedrec"), ("beta", "fedrap")):
        for protocol in ("clean", f"published-{paper}"):
            assert built.exists(f"results/data/{dataset}/{protocol}/split.parquet")
            assert built.exists(f"results/data/{dataset}/{protocol}/candidates.parquet")
    for table in ("dataset", "selected", "demo"):
        for form in ("csv", "md", "tex"):
            assert built.exists(f"results/tables/{table}_statistics.{form}")


def test_a_dataset_that_cannot_be_had_is_listed_with_the_reason_and_stops_nothing(built):
    table = (built.folder / "results/tables/dataset_statistics.md").read_text()
    assert re.search(r"\| alpha .*\| nothing printed", table)
    assert re.search(r"\| gamma .*\| not available", table)
    assert "- gamma, pfedrec: gamma.csv is not at hand; its licence must be accepted first" in table


def test_a_second_run_has_nothing_to_do(built):
    assert "Nothing to be done" in built.snakemake("all", "datasets", "demo")


def test_touch_re_runs_nothing(copy_of_built):
    for path in copy_of_built.folder.rglob("*"):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)
    assert "Nothing to be done" in copy_of_built.snakemake("all", "datasets", "demo")


def test_editing_one_entry_re_runs_only_that_dataset(copy_of_built):
    entries = copy_of_built.entries
    copy_of_built.set_entries(**entries | {"alpha": entries["alpha"] | {"filter": {"min_rows": 2}}})
    jobs = copy_of_built.planned("all", "datasets", "demo")
    assert {("prepare", "alpha"), ("split", "alpha"), ("describe", "alpha")} <= jobs
    assert {name for rule, name in jobs if rule != "statistics_table"} == {"alpha"}


def test_editing_a_title_re_runs_only_tables(copy_of_built):
    entries = copy_of_built.entries
    copy_of_built.set_entries(**entries | {"alpha": entries["alpha"] | {"title": "Another"}})
    jobs = copy_of_built.planned("all", "datasets", "demo")
    assert jobs == {("statistics_table", "dataset"), ("statistics_table", "selected")}


def test_editing_one_protocol_re_runs_only_its_splits(copy_of_built):
    protocols = yaml.safe_load((copy_of_built.folder / "config/protocols.yaml").read_text())
    protocols["published-fedrap"]["seed"] = 1
    copy_of_built.write("config/protocols.yaml", yaml.safe_dump(protocols))
    jobs = copy_of_built.planned("all")
    assert ("split", "beta") in jobs
    assert ("split", "alpha") not in jobs
    assert not any(rule == "prepare" for rule, _ in jobs)


def test_editing_a_module_re_runs_what_uses_it(copy_of_built):
    with (copy_of_built.folder / "fedrec/data/candidates.py").open("a") as stream:
        stream.write("# edited\n")
    rules = {rule for rule, _ in copy_of_built.planned("all")}
    assert "split" in rules
    assert not {"fetch", "prepare"} & rules


def test_editing_one_method_re_runs_only_that_method(copy_of_built):
    with (copy_of_built.folder / "fedrec/methods/draw_counter.py").open("a") as stream:
        stream.write("# edited\n")
    said = copy_of_built.snakemake("--dry-run", "all")
    assert set(re.findall(r"method=([\w-]+)", said)) == {"draw-counter"}


def test_editing_one_setting_re_runs_only_that_method(copy_of_built):
    methods = copy_of_built.folder / "config/methods.yaml"
    text = methods.read_text()
    changed = yaml.safe_load(text)
    changed["draw-counter"]["settings"]["negatives"]["value"] = 3
    methods.write_text(yaml.safe_dump(changed))
    said = copy_of_built.snakemake("--dry-run", "all")
    assert set(re.findall(r"method=([\w-]+)", said)) == {"draw-counter"}


def test_methods_are_compared_under_both_protocols(built):
    table = (built.folder / "results/tables/alpha_comparison.md").read_text()
    assert "| draw-counter |" in table
    assert "HR@10, published" in table
    assert "HR@10, clean" in table


@pytest.fixture(scope="module")
def varied(tmp_path_factory):
    """A project that compared FedMF with a variant of it, on the demonstration."""
    project = Project(tmp_path_factory.mktemp("varied"))
    project.configure(methods=["fedmf", "fedmf[d=08]"])
    project.snakemake("results/tables/demo_comparison.md")
    return project


def test_a_variant_is_trained_beside_its_method_and_both_are_compared(varied):
    table = (varied.folder / "results/tables/demo_comparison.md").read_text()
    assert re.search(r"^\| FedMF +\|", table, flags=re.MULTILINE)
    assert re.search(r"^\| FedMF\[d=8\] +\|", table, flags=re.MULTILINE)
    for path in ("runs/{}/run.json", "logs/runs/{}/train.log", "benchmarks/jobs/runs/{}/train.tsv"):
        assert varied.exists("results/" + path.format("pfedclr/demo/clean/fedmf[d=8][rounds=2]/seed0"))


def test_editing_a_setting_re_runs_exactly_what_does_not_set_it_itself(varied):
    methods = varied.folder / "config/methods.yaml"
    text = methods.read_text()
    changed = yaml.safe_load(text)
    changed["fedmf"]["settings"]["d"]["value"] = 4
    methods.write_text(yaml.safe_dump(changed))
    said = varied.snakemake("--dry-run", "results/tables/demo_comparison.md")
    methods.write_text(text)
    assert set(re.findall(r"method=([^, \n]+)", said)) == {"fedmf[rounds=2]"}


def test_a_variant_can_be_asked_for_by_its_path_in_its_one_spelling(varied):
    folder = "results/runs/pfedclr/demo/clean"
    varied.snakemake(f"{folder}/fedmf[d=8][rounds=3]/seed0/run.json")
    run = json.loads((varied.folder / folder / "fedmf[d=8][rounds=3]/seed0/run.json").read_text())
    assert (run["method"], run["settings"]["rounds"]) == ("fedmf[d=8][rounds=3]", 3)
    said = varied.snakemake(f"{folder}/fedmf[rounds=03]/seed0/run.json", succeeds=False)
    assert "'fedmf[rounds=03]' in a path is spelt 'fedmf[rounds=3]'" in said
    said = varied.snakemake(f"{folder}/fedmf[d=8/seed0/run.json", succeeds=False)
    assert "its brackets do not match" in said


def test_one_dataset_can_be_asked_for_alone(fresh):
    fresh.snakemake("results/data/beta/clean/split.parquet")
    made = {path.split("/")[2] for path in fresh.files() if path.startswith("results/data/")}
    assert made == {"beta"}


def test_an_unavailable_dataset_asked_for_by_name_is_an_error_that_helps(fresh):
    said = fresh.snakemake("results/data/gamma/clean/split.parquet", succeeds=False)
    assert "gamma.csv could not be had. Tried, in order:" in said
    assert "To place it by hand" in said
    assert "MissingOutputException" not in said
    assert not any(path.endswith((".parquet", ".csv")) for path in fresh.files())
    # As soon as the file is there, the same command works.
    shutil.copy(fresh.folder / "mirror/alpha.csv", fresh.folder / "mirror/gamma.csv")
    fresh.snakemake("results/data/gamma/clean/split.parquet")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("1,2,3,4\n1,2,x,4\n", "alpha.csv, line 2: rating is 'x', expected a number"),
        ("1,2\n", "has no column 2; its first line has 2"),
        ("1,2,3,4\n", "no user has 3 rows"),
        ("1,2,3,4\n1,3,3,4\n1,4,3,4\n", "user 0 has 0 of 3"),
    ],
)
def test_bad_data_gives_its_error_and_leaves_no_output(fresh, content, said):
    fresh.write("mirror/alpha.csv", content)
    assert said in fresh.snakemake("results/data/alpha/clean/split.parquet", succeeds=False)
    assert "results/data/alpha/clean/split.parquet" not in fresh.files()


def test_a_split_whose_row_order_cannot_be_had_is_left_out_and_listed(fresh):
    ordered = entry("alpha.csv", papers=["pfedrec", "fedrap"])
    ordered["row_orders"] = {"pfedrec": ordered["interactions"] | {"path": "alpha-by-pfedrec.csv"}}
    fresh.set_entries(**fresh.entries | {"alpha": ordered})
    fresh.configure(datasets=["alpha"])
    fresh.snakemake("all")
    assert fresh.exists("results/data/alpha/published-fedrap/split.parquet")
    assert not fresh.exists("results/data/alpha/published-pfedrec/split.parquet")
    table = (fresh.folder / "results/tables/selected_statistics.md").read_text()
    assert "- alpha, pfedrec: alpha-by-pfedrec.csv is not at hand" in table
    # Asked for by name it is an error, and once the file is there it is built.
    said = fresh.snakemake("results/data/alpha/published-pfedrec/split.parquet", succeeds=False)
    assert "that paper's own order of rows decides its ties" in said
    before = (fresh.folder / "results/data/alpha/clean/split.parquet").read_bytes()
    shutil.copy(fresh.folder / "mirror/alpha.csv", fresh.folder / "mirror/alpha-by-pfedrec.csv")
    fresh.snakemake("all")
    assert fresh.exists("results/data/alpha/published-pfedrec/split.parquet")
    assert (fresh.folder / "results/data/alpha/clean/split.parquet").read_bytes() == before


def test_wrong_content_gives_its_error_and_the_rest_is_built(fresh):
    checked = entry("alpha.csv")
    del checked["interactions"]["unverified"]
    checked["interactions"]["sha256"] = "0" * 64
    fresh.set_entries(**fresh.entries | {"alpha": checked})
    said = fresh.snakemake("all", succeeds=False)
    assert "wrong content: sha256" in said
    assert fresh.exists("results/data/beta/clean/split.parquet")
    assert not fresh.exists("results/raw/alpha.csv")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"dataset": ["alpha"]}, "unknown key 'dataset'. Did you mean 'datasets'?"),
        ({"datasets": ["alfa"]}, "unknown dataset 'alfa'. Did you mean 'alpha'?"),
        ({"protocols": ["cleen"]}, "unknown protocol 'cleen'. Did you mean 'clean'?"),
        ({"methods": ["fedfm"]}, "unknown method 'fedfm'. Did you mean 'fedmf'?"),
        ({"methods": ["fedmf[dd=8]"]}, "fedmf has no setting 'dd'. Did you mean 'd'?"),
        ({"methods": ["mf[d=8]", "mf[d=08]"]}, "'mf[d=8]' and 'mf[d=08]' are both mf[d=8]. Keep one."),
        (
            {"audit": {"methods": ["mf"], "switches": ["pol"], "uploads": ["fedmf"]}},
            "audit.switches[0]: 'pol' (text) is not allowed. Did you mean 'pool'? Write one of: pool, repeats",
        ),
    ],
)
def test_a_typo_in_the_configuration_stops_before_any_job(fresh, change, said):
    fresh.configure(**change)
    assert said in fresh.snakemake("all", succeeds=False)
    assert not fresh.exists("results/data")


def test_a_killed_run_is_taken_up_again(fresh):
    """SIGKILL while jobs run: the next call finishes, with the bytes of an unbroken run."""
    target = "results/data/alpha/clean/split.parquet"
    process = subprocess.Popen(
        [*SNAKEMAKE, target], cwd=fresh.folder, env=fresh.environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    for _ in range(600):
        if fresh.exists("results/data/alpha/interactions.parquet") or process.poll() is not None:
            break
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    fresh.snakemake("--unlock")
    fresh.snakemake(target)
    killed = (fresh.folder / target).read_bytes()
    fresh.snakemake("--forceall", target)
    assert (fresh.folder / target).read_bytes() == killed


def test_every_target_can_be_planned(fresh):
    fresh.set_entries(**fresh.entries | dict.fromkeys(("ml-1m", "ml-100k"), fresh.entries["alpha"]))
    assert "rule all:" in fresh.snakemake("--dry-run")
    for target in ("all", "demo", "datasets", "splits", "benchmark"):
        fresh.snakemake("--dry-run", target)


def test_the_rules_read_like_a_table_of_contents(built):
    listed = dict(re.findall(r"^(\w+) \((.+)\)$", built.snakemake("--list-rules"), flags=re.MULTILINE))
    assert {"all", "demo", "datasets", "splits", "benchmark", "fetch", "prepare", "split"} <= set(listed)


def test_the_linter_has_nothing_new_to_say(built):
    # One pinned environment serves every rule, so rules name none of their own.
    said = set(re.findall(r"^ +\* (.+?):?$", built.snakemake("--lint", succeeds=False), flags=re.MULTILINE))
    assert said == {"Specify a conda environment or container for each rule."}


def test_no_network_is_needed_for_the_demo(fresh):
    """Any connection to another machine would be an error under this proxy, which nobody serves."""
    nowhere = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")
    outcome = subprocess.run(
        [*SNAKEMAKE, "demo"],
        cwd=fresh.folder,
        env=fresh.environment() | nowhere,
        capture_output=True,
        text=True,
        check=False,
    )
    assert outcome.returncode == 0, outcome.stderr
    assert "| demo" in (fresh.folder / "results/tables/demo_statistics.md").read_text()


def rebuilt(project, *targets):
    """The tables and figures of papers that a dry run would build."""
    said = project.snakemake("--dry-run", *targets)
    return set(re.findall(r"wildcards: artefact=(\w+)", said))


def test_tables_and_figures_of_papers_are_targets_by_name_and_follow_what_decides_them(fresh):
    targets = ("pfedrec_table4", "pfedclr_table4", "fedrap_fig4")
    fresh.snakemake(*targets)
    assert fresh.exists("results/tables/pfedrec_table4.tex")
    assert fresh.exists("results/figures/fedrap_fig4.png")
    assert "Nothing to be done" in fresh.snakemake(*targets)
    numbers = fresh.folder / "fedrec/config/printed.csv"
    row = "pfedrec,Table 4,ml-100k,PFedRec,,learning_rate,0.1,,"
    text = numbers.read_text()
    assert row in text
    numbers.write_text(text.replace(row, row.replace("0.1", "0.2")))
    assert rebuilt(fresh, *targets) == {"pfedrec_table4"}
    numbers.write_text(text)
    figure = fresh.folder / "config/papers/fedrap.yaml"
    figure.write_text(figure.read_text().replace("title: Curricula\n", "title: Schedules\n"))
    assert rebuilt(fresh, *targets) == {"fedrap_fig4"}


def test_every_paper_is_a_target_and_an_unknown_artefact_an_error(fresh):
    fresh.snakemake("--dry-run", "pfedclr", "pfedrec", "fedem", "plgc", "fedrap")
    fresh.configure(artefacts=["pfedclr_tabel1"])
    said = fresh.snakemake("--dry-run", "all", succeeds=False)
    assert "Did you mean 'pfedclr_table1'" in said


def test_the_audit_trains_the_steps_between_protocols(fresh):
    """That of the configuration, and those of papers: on ml-100k, the one dataset of theirs that is here."""
    papers = ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap")
    fresh.set_entries(**fresh.entries | {"ml-100k": fresh.entries["alpha"] | {"distinct_pairs": True}})
    fresh.configure(audit=AUDIT)
    runs = fresh.trained("audit", *(f"audit_{paper}" for paper in papers))
    # Clean runs are shared by papers that train alike.
    kinds = {
        dataset: {(paper, kind) for paper, at, kind in runs if at == dataset and kind != "clean"}
        for dataset in ("alpha", "beta", "ml-100k")
    }
    assert kinds["alpha"] == {("pfedrec", "published"), ("pfedrec", "only-pool")}
    assert kinds["beta"] == {("fedrap", "published"), ("fedrap", "only-pool")}
    steps = {"published", "only-pool", "only-lists", "only-ties", "only-order", "upto-lists", "upto-ties"}
    for paper in papers:
        # PFedRec's lists are those of clean.
        expected = steps - ({"only-lists", "upto-lists"} if paper == "pfedrec" else set())
        assert {kind for of, kind in kinds["ml-100k"] if of == paper} == expected
    assert {at for _, at, kind in runs if kind == "clean"} == {"alpha", "beta", "ml-100k"}


def test_another_switch_changes_the_audit_alone(copy_of_built):
    copy_of_built.configure(audit=AUDIT | {"switches": ["pool", "order"]})
    said = copy_of_built.snakemake("--dry-run", "all")
    rules = set(re.findall(r"^(?:local)?rule (\w+):$", said, flags=re.MULTILINE))
    assert rules == {"split", "train", "audit_protocols", "report", "all"}
    assert set(re.findall(r"kind=([\w-]+)", said)) == {"only-order"}
    assert set(re.findall(r"protocol=([\w-]+)", said)) == {"only-order-pfedrec", "only-order-fedrap"}


def test_the_audit_shows_the_runs_that_are_trained(fresh):
    """Those of the demonstration have rounds of their own; where no uploads are attacked, none are shown."""
    fresh.configure(datasets=["alpha", "demo"], rounds=3, audit=AUDIT | {"uploads": []})
    said = fresh.snakemake("--dry-run", "--printshellcmds", "audit")
    assert "[rounds=2]" in said
    assert "rule audit_uploads:" not in said
    assert "rule audit_exposure:" in said
    assert "audit protocols --datasets alpha=pfedrec=3 demo=pfedclr=2 --names popularity" in said


def test_the_audit_is_built(built):
    for name in ("protocols", "exposure", "uploads", "significance", "granularity"):
        for form in ("csv", "md", "tex"):
            assert built.exists(f"results/tables/audit_{name}.{form}")
    assert built.exists("results/figures/audit_ranks.pdf")
    assert built.exists("results/tables/verdicts.md")
    exposure = (built.folder / "results/tables/audit_exposure.csv").read_text()
    assert re.search(r"^draw-counter,alpha,pfedrec,only-pool,", exposure, flags=re.MULTILINE)
