"""The workflow as a user runs it, on small made datasets, from nothing to pages.

What is planned, and what an edit re-runs, is tested without Snakemake in `tests/unit/plan`. Here are the calls
that only Snakemake can answer; everything is built once, and copied by tests that change something.
"""

import atexit
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import yaml

from fedrec.files.checked_json import read_checked_json, write_checked_json
from tests.conftest import HALF_WRITTEN, ROOT, entry
from tests.once import once_for_all_workers
from tests.projects import AUDIT, QUICK, content_of

OPTIONS = ["--cores", "2"]
SNAKEMAKE = [sys.executable, "-m", "snakemake", *OPTIONS]
RESULTS = "all results; touch ran $(touch ran) `touch ran` 'a' \"b\" & *"
"""A folder whose name a shell must never read: whatever is built is built in it."""
WILDCARDS = {
    "prepare": ("dataset",),
    "split": ("dataset", "protocol"),
    "describe": ("dataset",),
    "train": ("paper", "dataset", "protocol", "method", "seed"),
}
"""What the message of a job names, by its rule; that of any other names its target."""
BUILT = ("all", "datasets", "demo", "pfedrec_table4", "fedrap_fig4", "tune_fedease_pfedrec_demo")
SEARCH = {
    "because": "nobody says",
    "settings": {"penalty": {"log": [1, 1000]}},
}
THERE_AND_BACK = """
import shutil, sys
from fedrec.cli.main import main

failed = main(["results", "export", "alpha_comparison", "--out", "runs.tar"])
shutil.rmtree(sys.argv[1])
sys.exit(failed or main(["results", "import", "runs.tar"]))
"""
"""Takes runs into an archive, removes them, and takes them from there: torch is imported once for both."""
ELSEWHERE = """
import contextlib
from fedrec.cli.main import main

with open("runs.jsonl", "w") as runs, contextlib.redirect_stdout(runs):
    assert not main(["plan", "alpha_comparison"])
assert not main(["train-list", "runs.jsonl", "--jobs", "1"])
print("planned: ", end="")
assert not main(["plan", "alpha_comparison"])
"""
"""Trains the runs of a table from a list of them, and prints which of them the plan has left."""
PLAN_AND_STATUS = """
import sys
from fedrec.cli.main import main

assert not main(["plan", "--include-finished", *sys.argv[1:]])
assert not main(["status", *sys.argv[1:]])
"""
"""Prints the planned runs of targets, and how many of them are done."""
# Any connection to another machine would be an error under this proxy, which nobody serves.
NOWHERE = dict.fromkeys(("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"), "http://127.0.0.1:9")


@cache
def template() -> subprocess.Popen[str]:
    """The process that is copied for every call of Snakemake, until this one ends."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    process = subprocess.Popen(
        [sys.executable, "-P", Path(__file__).with_name("template.py")], env=environment, stdin=subprocess.PIPE,
        stdout=subprocess.PIPE, text=True, bufsize=1,
    )  # fmt: skip
    atexit.register(process.communicate)
    return process


class Checkout:
    """A copy of the project with a catalogue of its own: alpha is at hand, gamma nowhere."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def made(cls, folder: Path) -> "Checkout":
        checkout = cls(folder)
        folder.mkdir(exist_ok=True)
        for name in ("workflow", "config", "profiles", "fedrec", "benchmarks"):
            shutil.copytree(ROOT / name, folder / name, ignore=HALF_WRITTEN)
        shutil.copy(ROOT / "Snakefile", folder)
        (folder / "mirror").mkdir()
        rows = [(u, (u * 11 + s * 7) % 260, 5, s) for u in range(40) for s in range(10)]
        checkout.write("mirror/alpha.csv", "".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows))
        demo = content_of("datasets.yaml")["demo"]
        checkout.edit(
            "config/datasets.yaml",
            lambda _: {"alpha": entry("alpha.csv"), "gamma": entry("gamma.csv"), "demo": demo},
        )
        # Methods that are quick and not the same: what is tested here is the workflow.
        checkout.edit(
            "config/config.yaml",
            lambda config: (
                config
                | {"datasets": ["alpha"], "methods": QUICK, "audit": AUDIT, "rounds": 2, "demo_rounds": 2}
                | {"results": RESULTS}
            ),
        )
        # Without a last step of several seeds, for which it would be asked twice.
        checkout.edit(
            "config/tuning.yaml",
            lambda tuning: (
                {key: value for key, value in tuning.items() if key != "final"}
                | {"datasets": ["demo"], "trials_per_setting": 2}
                | {"searches": {"fedease@pfedrec": SEARCH}}
            ),
        )
        # What searches found is refused where settings are others, as tests make them.
        checkout.write("config/found.yaml", "{}\n")
        return checkout

    def copy(self, folder: Path) -> "Checkout":
        """The same checkout in another folder, free to be changed; times are kept."""
        shutil.copytree(self.folder, folder, symlinks=True)
        return Checkout(folder)

    def write(self, path, text):
        (self.folder / path).write_text(text)

    def edit(self, path, change):
        """Change the content of a YAML file."""
        content = yaml.safe_load((self.folder / path).read_text())
        self.write(path, yaml.safe_dump(change(content), sort_keys=False))

    def environment(self):
        # The copied sources, not the installed ones, so that tests may edit them.
        own = {"FEDREC_MIRROR": str(self.folder / "mirror"), "PYTHONPATH": str(self.folder)}
        return os.environ | NOWHERE | own | {"OMP_NUM_THREADS": "1"}

    def snakemake(self, *arguments, succeeds=True):
        """What a call says, by a copy of the template."""
        with TemporaryDirectory() as folder:
            request = {
                "words": [*OPTIONS, *arguments], "folder": str(self.folder), "environment": dict(self.environment()),
                "said": f"{folder}/said",
            }  # fmt: skip
            process = template()
            process.stdin.write(json.dumps(request) + "\n")
            status = process.stdout.readline().strip()
            said = Path(folder, "said").read_text()
        assert (status == "0") == succeeds, said
        return said

    def fedrec(self, *arguments):
        """What a command prints, of the copied sources."""
        return self.python("-m", "fedrec", *arguments)

    def run(self, *arguments, succeeds=True):
        """The output of `fedrec run`."""
        command = [sys.executable, "-m", "fedrec", "run", *OPTIONS, *arguments]
        done = subprocess.run(
            command, cwd=self.folder, env=self.environment(), text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        assert (done.returncode == 0) == succeeds, done.stdout
        return done.stdout

    def python(self, *words):
        """What Python prints that finds the copied sources."""
        command = [sys.executable, *words]
        return subprocess.check_output(command, cwd=self.folder, env=self.environment(), text=True)

    def planned(self, *targets):
        """The jobs a dry run would do: the wildcards of each, by rule."""
        text = self.snakemake("--dry-run", "--quiet", "host", "--", *targets)
        found: dict[str, list[dict[str, str]]] = {}
        # Jobs of a group are indented.
        for rule, about in re.findall(r"^ *Job \d+: (\w+) (.*)$", text, flags=re.MULTILINE):
            wildcards = WILDCARDS.get(rule, ("target",))
            found.setdefault(rule, []).append(dict(zip(wildcards, about.split("/"), strict=False)))
        return found

    def result(self, path):
        return self.folder / RESULTS / path


@pytest.fixture(scope="session")
def built(tmp_path_factory):
    """A checkout with everything built. Nobody changes it."""
    folder = once_for_all_workers(
        tmp_path_factory,
        "built checkout",
        lambda folder: Checkout.made(folder).run("--workers", *BUILT),
    )
    return Checkout(folder)


@pytest.fixture
def copied(built, tmp_path):
    return built.copy(tmp_path / "copied")


@pytest.fixture
def fresh(tmp_path):
    (tmp_path / "fresh").mkdir()
    return Checkout.made(tmp_path / "fresh")


def test_all_that_was_asked_for_is_there_without_any_network(built):
    for dataset, paper in (("alpha", "pfedrec"), ("demo", "pfedclr")):
        for protocol in ("clean", f"published-{paper}"):
            assert built.result(f"data/{dataset}/{protocol}/split.parquet").is_file()
        table = built.result(f"tables/{dataset}_comparison.md").read_text()
        assert "draw-counter" in table
        assert "HR@10, published" in table
        assert "HR@10, clean" in table
        assert built.result(f"figures/{dataset}_convergence.pdf").is_file()
    for name in ("protocols", "exposure", "uploads", "significance", "granularity"):
        assert built.result(f"tables/audit_{name}.tex").is_file()
    assert built.result("figures/audit_ranks.png").is_file()
    assert built.result("tables/pfedrec_table4.csv").is_file()
    assert built.result("figures/fedrap_fig4.txt").is_file()
    assert "Chosen: trial" in built.result("tuning/tune_fedease_pfedrec_demo.md").read_text()
    for page, prefix in (("report", ""), ("demo", "demo_")):
        text = built.result(f"report/{page}.html").read_text()
        assert "</html>" in text
        for name in ("exposure", "protocols", "significance"):
            assert f'id="{prefix}audit_{name}' in text
    assert 'id="demo_comparison' in text
    assert built.result("plan/demo.json").is_file()


def test_nothing_in_a_name_was_run_by_a_shell(built):
    """The folder of results holds words that would make a file; Snakemake, jobs and logs lie in it."""
    assert not list(built.folder.rglob("ran"))
    assert built.result("logs/tables/alpha_comparison.log").is_file()


def test_all_planned_runs_are_done_and_no_others(built):
    *noted, status = built.python("-c", PLAN_AND_STATUS, *BUILT).splitlines()
    assert status == f"{len(noted)} of {len(noted)} runs done."
    asked = {Path(json.loads(line)["out"]) for line in noted}
    assert {path.parent for path in built.result("runs").rglob("run.json")} == {
        built.folder / one for one in asked
    }


def test_a_verdict_is_three_hops_from_its_runs(built):
    """A table, the plan that names its runs, and the runs, each of which says what it is."""
    plan = json.loads(built.result("plan/alpha_comparison.json").read_text())
    assert plan["files"][0] == "tables/alpha_comparison.csv"
    assert {run["protocol"] for run in plan["runs"]} == {"published-pfedrec", "clean"}
    for run in plan["runs"]:
        folder = f"runs/{run['paper']}/{run['dataset']}/{run['protocol']}"
        (summary,) = built.result(folder).glob(f"{run['method'].partition('[')[0]}*/seed0/run.json")
        told = json.loads(summary.read_text())
        assert (told["method"], told["protocol"]["name"]) == (run["method"], run["protocol"])
        # A clean run has the settings of several papers, and is filed under the first.
        shared = "pfedrec" in told["also_settings_of"]
        assert shared == (run["protocol"] == "clean")


def test_a_dataset_that_is_unavailable_is_listed_with_the_reason_and_stops_nothing(built):
    table = built.result("tables/dataset_statistics.md").read_text()
    rows = built.result("tables/dataset_statistics.csv").read_text().splitlines()
    assert [row for row in rows if row.startswith("alpha,") and "nothing printed" in row]
    assert [row for row in rows if row.startswith("gamma,") and "not available" in row]
    assert "- gamma, pfedrec: gamma.csv is not local: fedrec looked in the project's folder" in table


def test_touching_files_and_editing_prose_re_run_nothing(copied):
    for path in copied.folder.rglob("*"):
        if path.is_file() and ".snakemake" not in path.parts:
            os.utime(path)
    for path in ("federation/federation.py", "progress.py", "methods/draw_counter.py", "reporting/build.py"):
        source = copied.folder / "fedrec" / path
        source.write_text(source.read_text().replace('"""', '"""In other words: ', 1) + "# Edited.\n")
    assert "Nothing to be done" in copied.snakemake(*BUILT)
    for key, name in (("method_file", "methods"), ("catalogue", "datasets"), ("protocol_file", "protocols")):
        (copied.folder / f"config/{name}.yaml").rename(copied.folder / f"config/moved_{name}.yaml")
        copied.edit(
            "config/config.yaml",
            lambda config, key=key, name=name: config | {key: f"config/moved_{name}.yaml"},
        )
    copied.edit("config/config.yaml", lambda config: config | {"diverged": "kept"})
    # Reasons and captions may name a file of the configuration; what is trained does not. Runs that stayed finite
    # are the same where those that diverge are kept.
    jobs = copied.planned(*BUILT)
    assert not {"fetch", "prepare", "split", "describe", "train"} & set(jobs), jobs


def test_editing_a_method_and_a_setting_of_another_re_trains_these_two_alone(copied):
    """Of three: the code of one, and a setting of the one whose uploads are attacked."""
    with (copied.folder / "fedrec/methods/draw_counter.py").open("a") as stream:
        stream.write("EDITED = True\n")

    def fewer(methods):
        settings = methods["fedmf"]["settings"]
        # Its own: other methods hold the same one.
        settings["negatives"] = settings["negatives"] | {"value": 3}
        return methods

    copied.edit("config/methods.yaml", fewer)
    jobs = copied.planned("all")
    assert {job["method"].partition("@")[0] for job in jobs["train"]} == {"draw-counter", "fedmf"}
    assert not {"fetch", "prepare", "split"} & set(jobs)
    assert {"alpha_comparison", "audit_exposure"} <= {job["target"] for job in jobs["table"]}


def test_editing_an_entry_re_runs_that_dataset_alone(copied):
    copied.edit(
        "config/datasets.yaml",
        lambda entries: entries | {"alpha": entries["alpha"] | {"filter": {"min_rows": 2}}},
    )
    jobs = copied.planned(*BUILT)
    assert {"prepare", "split", "describe", "train", "table"} <= set(jobs)
    assert {job["dataset"] for rule in ("prepare", "split", "train") for job in jobs[rule]} == {"alpha"}
    assert "demo_comparison" not in {job["target"] for job in jobs["table"]}


def test_runs_trained_elsewhere_are_used_unless_they_are_of_other_code(copied):
    """Snakemake did not train them, and so cannot compare their code: `fedrec build` does, and refuses them.

    Jobs that train them again share a process if asked to.
    """
    for folder in (copied.result("runs"), copied.result("tables"), copied.folder / ".snakemake/metadata"):
        shutil.rmtree(folder)
    assert copied.python("-c", ELSEWHERE).endswith("Finished all 4 runs of runs.jsonl.\nplanned: ")
    assert "train" not in copied.planned("alpha_comparison")
    changed = sorted(copied.result("runs").rglob("run.json"))[0]
    write_checked_json(changed, read_checked_json(changed) | {"code": "of another day"})
    refusal = copied.snakemake("alpha_comparison", succeeds=False)
    assert "1 of its 4 runs do not match the plan" in refusal
    assert "differs from the plan in its code" in refusal
    assert "fedrec run --cores 2 alpha_comparison" in refusal
    assert not copied.result("tables/alpha_comparison.md").exists()
    lost = sorted(copied.result("runs").rglob("ranks.parquet"))[-1]
    before = lost.read_bytes()
    lost.unlink()
    # A note of each process that is started: on one core, one does the runs and the table after them.
    source = copied.folder / "fedrec/cli/worker.py"
    source.write_text(source.read_text().replace("    work(", "    open('started', 'a').write('.'); work("))
    text = copied.run("--workers", "--cores", "1", "--", "alpha_comparison")
    assert (copied.folder / "started").read_text() == "."
    assert "Runs to train: 2, about a core-minute" in text
    assert read_checked_json(changed)["code"] != "of another day"
    assert lost.read_bytes() == before
    assert copied.result("tables/alpha_comparison.md").is_file()
    noted = copied.result("plan/runs.jsonl").read_text().splitlines()
    assert copied.fedrec("status") == f"{len(noted)} of {len(noted)} runs done.\n"


def test_runs_of_an_archive_are_not_trained_again_though_others_were_trained_here(copied):
    """They are of other code than those that Snakemake remembers to have trained."""
    with (copied.folder / "fedrec/methods/draw_counter.py").open("a") as stream:
        stream.write("EDITED = True\n")
    lines = [json.loads(line) for line in copied.fedrec("plan", "alpha_comparison").splitlines()]
    assert {line["method"] for line in lines} == {"draw-counter[rounds=2]"}
    for line in lines:
        path = copied.folder / line["out"] / "run.json"
        write_checked_json(path, read_checked_json(path) | {"code": line["code"], "engine": "fused"})
    assert "imported 4 of 4 runs" in copied.python("-c", THERE_AND_BACK, str(copied.result("runs")))
    assert "Runs to train: none." in copied.run("--dry-run", "alpha_comparison")
    before = {path: path.read_bytes() for path in copied.result("runs").rglob("timing.parquet")}
    copied.snakemake("alpha_comparison")
    # Snakemake starts a job for each run whose parameters changed; the job finds the planned run and keeps it.
    assert before == {path: path.read_bytes() for path in copied.result("runs").rglob("timing.parquet")}
    assert "Nothing to be done" in copied.snakemake("alpha_comparison")


def test_a_second_checkout_trains_nothing_unless_its_code_is_another(tmp_path, monkeypatch):
    """Through Snakemake's cache; in the second checkout nothing that fetches, splits or trains would succeed."""
    monkeypatch.setenv("SNAKEMAKE_OUTPUT_CACHE", str(tmp_path / "cache"))
    first, second = (Checkout.made(tmp_path / name) for name in ("first", "second"))
    run = f"{RESULTS}/runs/pfedclr/alpha/clean/draw-counter@rounds-2/seed0/run.json"
    (tmp_path / "cache").mkdir()
    first.snakemake("--cache", "--", run)

    command = second.folder / "fedrec/cli/main.py"
    own = command.read_text()
    command.write_text(
        own.replace("    words = ", '    raise SystemExit("nothing is to be done")\n    words = ')
    )
    second.snakemake("--cache", "--", run)
    command.write_text(own)
    for name in ("run.json", "state.safetensors", "timing.parquet"):
        made, taken = (checkout.folder / Path(run).parent / name for checkout in (first, second))
        assert taken.is_symlink()
        assert taken.read_bytes() == made.read_bytes()
    assert "Nothing to be done" in second.snakemake("--dry-run", "--", run)

    with (second.folder / "fedrec/methods/draw_counter.py").open("a") as stream:
        stream.write("EDITED = True\n")
    assert "train pfedclr/alpha/clean" in second.snakemake(
        "--dry-run", "--quiet", "host", "--cache", "--", run
    )


def test_a_killed_run_is_taken_up_again(built, fresh):
    """SIGKILL while jobs run: the next call finishes, with the bytes of an unbroken run."""
    target = "data/alpha/clean/split.parquet"
    process = subprocess.Popen(
        [*SNAKEMAKE, f"{RESULTS}/{target}"], cwd=fresh.folder, env=fresh.environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    while not fresh.result("data/alpha/interactions.parquet").exists() and process.poll() is None:
        time.sleep(0.02)
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    fresh.snakemake("--unlock")
    fresh.snakemake(f"{RESULTS}/{target}")
    assert fresh.result(target).read_bytes() == built.result(target).read_bytes()


def test_an_unavailable_dataset_asked_for_by_name_is_an_error_that_helps(fresh):
    text = fresh.snakemake(f"{RESULTS}/data/gamma/clean/split.parquet", succeeds=False)
    assert "gamma.csv: could not be fetched. fedrec tried, in this order:" in text
    assert "To add it by hand" in text
    assert "MissingOutputException" not in text
    assert not any(path.suffix in (".parquet", ".csv") for path in fresh.result("").rglob("*"))


def test_a_mistake_is_told_before_any_job(fresh):
    text = fresh.run("--dry-run", "pfedclr_tabel1", succeeds=False)
    assert text == (
        "fedrec: there is no target 'pfedclr_tabel1'. Did you mean 'pfedclr_table1'? `fedrec artefacts` lists the "
        "tables and figures of papers, `snakemake --list-rules` all targets.\n"
    )
    assert "pfedclr_tabel1" in fresh.snakemake("--dry-run", "pfedclr_tabel1", succeeds=False)
    text = fresh.snakemake("--dry-run", "--config", "rounds=3", "--", "pfedrec_table4", succeeds=False)
    assert "fedrec: from --config: rounds has no effect on pfedrec_table4. It shortens" in text
    fresh.write("config/mine.yaml", "seeds: [0]\nmethods: [fedfm]\n")
    text = fresh.snakemake("--dry-run", "--configfile", "config/mine.yaml", succeeds=False)
    # Ours stands alone, but for Snakemake's word on the profile.
    (said,) = [line for line in text.splitlines() if not line.startswith("Using workflow specific profile")]
    assert said.startswith(
        "fedrec: config/mine.yaml, line 2, methods[0]: unknown method 'fedfm'. Did you mean"
    )
    fresh.write("config/config.yaml", "results: results\n\tseeds: [0]\n")
    text = fresh.snakemake("--dry-run", succeeds=False)
    assert "fedrec: config/config.yaml, line 2: not valid YAML" in text
    assert "Replace the tab" in text


def test_a_dry_run_is_short(fresh):
    text = fresh.run("--dry-run", "demo")
    # Two methods under both protocols and one between them, and the one whose uploads are attacked.
    assert (
        "Runs to train: 7, about a core-minute on a CPU (4 s on 2 cores), or 21 s on a GPU (estimated)."
        in text
    )
    assert "demo, settings of pfedclr: 7 (3 methods, 3 protocols, 1 seed)" in text
    assert "rule train" not in text
    assert len(text.splitlines()) < 50
    assert not fresh.result("plan").exists()


def test_the_rules_read_like_a_table_of_contents(built):
    text = built.snakemake("--list-rules")
    listed = dict(re.findall(r"^(\w+) \((.+)\)$", text, flags=re.MULTILINE))
    assert {"all", "demo", "datasets", "splits", "benchmark", "fetch", "prepare", "split"} <= set(listed)
    assert {"train", "table", "figure", "page", "pfedclr", "pfedclr_table1", "audit_pfedclr"} <= set(listed)


def test_the_linter_has_nothing_new_to_say(built):
    # One pinned environment serves every rule, so rules name none of their own.
    text = built.snakemake("--lint", succeeds=False)
    lints = set(re.findall(r"^ +\* (.+?):?$", text, flags=re.MULTILINE))
    assert lints == {"Specify a conda environment or container for each rule."}


def test_snakemake_reports_on_what_was_built(copied):
    copied.snakemake("--report", "report.zip", "demo")
    assert (copied.folder / "report.zip").stat().st_size > 10_000
