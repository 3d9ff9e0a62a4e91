"""README and docs: numbers that a file holds, tables made from them, links that lead somewhere."""

import ast
import csv
import re
from contextlib import nullcontext
from pathlib import Path

import pytest
import yaml

from docs import make
from docs.tables import objections, results
from docs.tables.numbers import numbers_text
from docs.tables.searches import frozen_trials
from fedrec.audit.verdict_summary import UNTUNED, summarise_verdicts
from fedrec.config.catalogue import load_catalogue
from fedrec.config.methods import load_methods, resolve, setting_text
from fedrec.config.modules import method_names, plugin_names
from fedrec.config.papers import load_papers
from fedrec.config.printed import printed_numbers
from fedrec.config.protocol_file import load_protocols
from fedrec.config.tuning import finding_of, load_tuning
from fedrec.federation.engines.engine import ENGINES
from fedrec.files.checked_json import read_checked_json
from fedrec.plan.cost import seconds_of
from fedrec.plan.runs import RunId
from fedrec.plan.selection import runs_of
from fedrec.reporting.publish import PUBLISHED_FROM, store_checksum
from fedrec.runs.store import RunStore, packed_run
from tests.conftest import ROOT
from tests.made_runs import write_run

PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "config/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROSE = " ".join(README.split())
"""README in one line."""
EXAMPLES = {"fedrec/methods/fedgmf.py"}
"""Files that a page tells its reader to make."""
COMPUTED = {ROOT / "README.md", ROOT / "docs/protocols.md"}
"""Pages with a test of their own: here, and tests/unit/config/test_protocols_document.py."""
KEYED = re.compile(r"(?<![\w.])([\d,]*\d(?:\.\d+)?)<!-- number: (.*?) -->")
"""A number, and behind it the file, the row and the column that hold it."""


def name_of(page):
    return page.relative_to(ROOT).as_posix()


def rows(name):
    with (ROOT / "docs/numbers" / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def cell(key):
    """The cell that a key names: a file of docs/numbers or of the project, `column=value` of its row, a column."""
    file, *wanted, column = key.split("; ")
    path = ROOT / file if "/" in file else ROOT / "docs/numbers" / file
    with path.open(encoding="utf-8", newline="") as stream:
        pairs = [one.split("=", 1) for one in wanted]
        (row,) = (row for row in csv.DictReader(stream) if all(row[name] == value for name, value in pairs))
    return row[column]


def test_tables_and_picture_show_the_numbers_of_their_files():
    assert make.outdated() == []


def test_numbers_on_movielens_are_those_of_the_reference(tmp_path):
    run = write_run(
        tmp_path,
        RunId("pfedclr", "ml-100k", "clean", "fedmf", 0),
        load_methods(ROOT / "config/methods.yaml"),
    )
    store = RunStore(tmp_path / "store")
    store.add([packed_run(run)])
    kept, changed = (rows("ml-100k"), results.from_reference(rows("ml-100k"), store.folder))
    (before,), (after,) = ([row for row in some if row["method"] == "fedmf"] for some in (kept, changed))

    assert after == {
        **before,
        "clean_hr": f"{run.metric('hr@10'):.4f}",
        "clean_ndcg": f"{run.metric('ndcg@10'):.4f}",
    }
    assert [row for row in changed if row["method"] != "fedmf"] == [
        row for row in kept if row["method"] != "fedmf"
    ]
    assert numbers_text(kept) == (ROOT / "docs/numbers/ml-100k.csv").read_text(encoding="utf-8")


def test_a_row_of_a_method_whose_settings_were_searched_is_of_one_setting(tmp_path):
    """Of one protocol alone nothing is taken: the other number is of the settings before the search."""
    methods, store = load_methods(ROOT / "config/methods.yaml"), RunStore(tmp_path / "store")
    (before,) = (row for row in rows("ml-100k") if row["method"] == "mf")
    filled = []
    for protocol in ("clean", "published-pfedclr"):
        run = write_run(tmp_path, RunId("pfedclr", "ml-100k", protocol, "mf", 0), methods)
        store.add([packed_run(run)])
        filled.append(results.from_reference([before], store.folder)[0])

    assert filled[0] == before
    assert all(filled[1][name] != before[name] for name in ("published_hr", "clean_hr"))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_number_is_that_of_the_cell_it_names(page):
    for number, key in KEYED.findall(page.read_text(encoding="utf-8")):
        decimals = len(number.partition(".")[2])
        assert number.replace(",", "") == f"{float(cell(key)):.{decimals}f}", key


@pytest.mark.parametrize("page", [page for page in PAGES if page not in COMPUTED], ids=name_of)
def test_every_number_of_three_or_more_decimals_in_prose_names_its_cell(page):
    """Such a number was measured or printed; the key behind it is a comment, which no reader sees."""
    text = page.read_text(encoding="utf-8")
    for apart in (r"<!-- table.*?end of table -->", r"^    .*$", r"^```.*?^```", r"`[^`]*`"):
        text = re.sub(apart, "", text, flags=re.DOTALL | re.MULTILINE if "*?" in apart else re.MULTILINE)
    text = KEYED.sub("", text)
    assert re.findall(r"(?<![\w.])\d+\.\d{3,}", text) == []


@pytest.mark.parametrize(
    ("text", "is_right"),
    [
        ("0.6178<!-- number: diverged.csv; paper=fedem; hr@10 -->", True),
        ("0.62<!-- number: diverged.csv; paper=fedem; hr@10 -->", True),
        ("0.6210<!-- number: diverged.csv; paper=fedem; hr@10 -->", False),
    ],
)
def test_a_number_of_the_same_file_and_another_column_is_wrong(tmp_path, text, is_right):
    page = tmp_path / "page.md"
    page.write_text(text, encoding="utf-8")
    with nullcontext() if is_right else pytest.raises(AssertionError):
        test_a_number_is_that_of_the_cell_it_names(page)


def test_the_counts_of_the_front_page_are_right():
    papers = load_papers(ROOT / "config/papers")
    artefacts = sum(len(paper.artefacts) for paper in papers.values())
    words = {3: "three", 4: "four", 5: "five"}
    assert f"{artefacts} tables and figures" in PROSE
    assert f"{len(printed_numbers()):,} printed numbers" in PROSE
    # What a user adds is counted nowhere.
    tables = re.findall(r"^\| .*$", (ROOT / "docs/methods.md").read_text(encoding="utf-8"), re.M)
    own = set(re.findall(r"`([a-z-]+)`", " ".join(row for row in tables if not row.startswith("| `+"))))
    plugins = {row.split("`")[1] for row in tables if row.startswith("| `+")}
    assert own <= set(method_names())
    assert plugins <= {f"+{name}" for name in plugin_names()}
    assert f"{len(own)} methods" in PROSE
    assert f"{words[len(plugins)]} plug-ins" in PROSE
    pfedrec, fedrap = (1000 * float(row["theirs_s"]) / float(row["ours_ms"]) for row in rows("authors-h200"))
    assert (round(pfedrec / 1000), round(fedrap / 1000)) == (9, 17)
    assert re.findall(r"\b([a-z]+) thousand times", PROSE) == ["nine", "seventeen"]
    counter = next(row for row in rows("ml-100k") if row["method"] == "draw-counter")
    stated = re.findall(r"\b\d\.\d{4}\b", README.partition("<!-- table")[0])
    assert stated == [counter["published_hr"], counter["clean_hr"]]


def test_front_page_and_report_count_the_verdicts_of_the_reference():
    with (ROOT / "results/reference/tables/verdicts.csv").open(encoding="utf-8", newline="") as stream:
        summary = summarise_verdicts(csv.DictReader(stream))
    block = README.partition("<!-- table: claims -->")[2].partition("<!-- end of table -->")[0]
    report = (ROOT / "results/reference/report/report.txt").read_text(encoding="utf-8")
    # The page has the other conditions in a line between.
    main, _, rest = report.splitlines()[-3:]
    for text in (" ".join(block.replace("**Claims.**", "").split()), f"{main} {rest}"):
        assert text.startswith(f"fedrec judges {summary.judged} of {summary.rows} claims")
        for verdict, count in summary.counts.items():
            assert sum(map(int, re.findall(rf"\b{verdict} (\d+)", text))) == count
        assert f"catalogue decide {summary.by_exact_ranks} of the {summary.judged}," in text
        assert f"; {summary.with_one_seed} of the {summary.judged} rest on one seed." in text
        assert f"Not among the {summary.rows}: {summary.not_counted} on filmtrust and tafeng" in text
        assert f", {summary.repeated} that repeat another claim." in text
        assert f"not reproduced, {summary.found_published} show the printed effect" in text
        assert UNTUNED in text


def test_every_objection_says_whether_it_is_right_and_which_file_answers_it():
    """The last two may have no file: nothing answers them yet."""
    text = (ROOT / "docs/objections.md").read_text(encoding="utf-8")
    text = re.sub(r"<!-- [^>]* -->|^\|[^\n]*$", "", text, flags=re.MULTILINE)
    by_author = {
        part.partition("\n")[0]: [" ".join(one.split()) for one in re.split(r'\n(?=\*\*")', part)[1:]]
        for part in text.split("\n## ")[1:]
    }
    assert [len(own) for own in list(by_author.values())[:2]] == [8, 2]
    for objection in (one for own in by_author.values() for one in own):
        words = re.sub(r'^\*\*".*?"\*\* ', "", objection)
        assert re.match(r"(Right|Half right|Partly right|Wrong|Open)\b", words), objection
        assert re.search(r"Files?: .*\]\(|not yet there", words), objection


def test_what_objections_say_of_their_tables_is_so():
    def cells(table):
        return {
            row.split(" | ")[0].strip("| "): row.strip("| ").split(" | ") for row in table.splitlines()[2:]
        }

    lines = cells(objections.beta())
    beta = {name: [float(cell) for cell in row[1:-1]] for name, row in lines.items()}
    assert all(chosen > own for own, _, chosen, _ in beta.values())
    above = {name for name, (_, _, chosen, backbone) in beta.items() if chosen > backbone}
    assert above == {"filmtrust", "lastfm-2k-c"}
    assert {name for name, row in beta.items() if row[1] == 0} == {"ml-100k", "ml-1m"}
    assert float(lines["ml-100k"][-1]) == pytest.approx(beta["ml-100k"][-1], abs=0.01)
    ranks = {name: [float(cell) for cell in row[1:]] for name, row in cells(objections.both_ranks()).items()}
    assert sum(fedmf > pfedrec for _, pfedrec, fedmf, _, _ in ranks.values()) == 3
    assert sum(fedmf > pfedrec for *_, pfedrec, fedmf in ranks.values()) == 1


def test_the_cut_of_temporal_leaves_more_users_than_a_later_one_on_five_datasets():
    """The argument for it in docs/protocols.md."""
    cut = load_protocols(ROOT / "config/protocols.yaml")["temporal"].cut
    stay = {(row["dataset"], float(row["cut"])): int(row["stay"]) for row in rows("cuts")}
    datasets = list(dict.fromkeys(dataset for dataset, _ in stay))
    more = {name: stay[name, cut] - stay[name, 0.9] for name in datasets}
    assert (cut, len(datasets)) == (0.8, 6)
    assert {name: gain for name, gain in more.items() if gain <= 0} == {"ml-1m": -37}


def test_no_objection_is_said_to_wait_for_runs_that_are_stored():
    store = RunStore(ROOT / "results/reference")
    there = {Path(name).parts[3] for dataset in store.datasets() for name in store.names_on(dataset)}
    text = " ".join((ROOT / "docs/objections.md").read_text(encoding="utf-8").split())
    for protocol, waits in (
        ("neutral", "column of their own where there are runs: not yet run"),
        ("neutral", "asks it of all claims: not yet run"),
        ("clean-1", "Another draw of candidates: not yet run"),
        ("temporal", "Claims under it: not yet run"),
    ):
        assert (waits in text) == (protocol not in there), protocol


def test_runs_of_clusters_are_stored_and_have_the_numbers_of_their_table():
    known = printed_numbers()
    store = RunStore(ROOT / "results/reference")
    for row in rows("clusters"):
        record = store.record(row["folder"])
        for metric, name in (("hr@10", "hr"), ("ndcg@10", "ndcg")):
            assert f"{record.metric(metric):.4f}" == row[name], row["folder"]
            values = {
                f"{number.value:.4f}"
                for key, number in known.items()
                if (key[0], key[2], key[5]) == (row["paper"], row["dataset"], metric)
            }
            assert row[f"printed_{name}"] in values, row["folder"]


def test_the_front_page_says_how_many_printed_numbers_agree():
    """And how many of these rest on nothing that was searched for, or fitted."""
    with (ROOT / "results/reference/tables/coverage.csv").open(encoding="utf-8", newline="") as stream:
        rows = csv.DictReader(stream)
        numbers = [
            row for row in rows if row["metric"].startswith(("hr@", "ndcg@")) and row["unit"] == "fraction"
        ]
    agreeing = [row for row in numbers if row["standing"] == "agrees"]
    ours, neither = (
        sum(bool(row["published"]) for row in numbers),
        sum(row.get("rests_on") == "neither" for row in agreeing),
    )
    paragraph = PROSE.partition("**Numbers.**")[2].partition("**Tuned alike.**")[0]
    assert "[agree](results/reference/tables/coverage.md)" in paragraph
    stated = [int(text.replace(",", "")) for text in re.findall(r"\b[\d,]*\d\b", paragraph)]
    assert stated == [ours, len(numbers), len(agreeing), neither]


def test_the_rounds_and_hours_of_the_front_page_are_right():
    configuration = yaml.safe_load((ROOT / "config/config.yaml").read_text(encoding="utf-8"))
    methods = load_methods(ROOT / "config/methods.yaml")
    catalogue, papers = load_catalogue(ROOT / "config/datasets.yaml"), load_papers(ROOT / "config/papers")
    rounds = {resolve(methods, "fedmf", paper, "ml-100k")[0]["rounds"] for paper in papers}
    (line,) = re.findall(r"^    snakemake --cores 8 all +# the papers' ([\d or]+) rounds", README, re.M)
    assert configuration["rounds"] is None
    assert set(map(int, re.findall(r"\d+", line))) == rounds
    assert re.search(rf"snakemake --cores 8 quick +# {configuration['quick_rounds']} rounds", README)
    table = papers["pfedclr"].artefacts["table1"]
    runs = {run for group in runs_of(table, methods, [0]).values() for run in group}
    hours = sum(seconds_of(run, methods, catalogue) for run in runs) / 3600
    on_one = sum(seconds_of(run, methods, catalogue) for run in runs if run.dataset == "ml-100k") / 3600
    (command,) = re.findall(r"^.*'paper_datasets=\[ml-100k\]' -- pfedclr_table1.*$", README, re.M)
    assert "half a core-hour" in command
    assert on_one == pytest.approx(0.5, abs=0.1)
    (least,) = re.findall(r"over (\d+) core-hours", README)
    assert hours > int(least)


def test_the_ranks_of_the_results_are_right():
    text = " ".join((ROOT / "docs/results.md").read_text(encoding="utf-8").split())
    stated = re.findall(r"`?([\w-]+)`? from rank (\d+) to (\d+)", text)

    def rank(method, step):
        values = results.switched("ml-100k", step)
        return str(1 + sum(value > values[method] for value in values.values()))

    moved = ("draw-counter", "PFedCLR", "FedRAP", "FedEM")
    assert stated == [(name, rank(name, "published"), rank(name, "only-pool")) for name in moved]


def test_methods_at_the_steps_between_protocols_are_the_same_and_of_one_seed():
    methods = {
        frozenset(results.switched(dataset, step))
        for dataset in ("ml-100k", "filmtrust")
        for step in ("published", "only-pool", "clean")
    }
    assert len(methods) == 1
    for table in ("audit_protocols", "audit_protocols_pfedclr"):
        path = ROOT / f"results/reference/tables/{table}.csv"
        with path.open(encoding="utf-8", newline="") as stream:
            shown = [row for row in csv.DictReader(stream) if row["dataset"] in ("ml-100k", "filmtrust")]
        assert {row["seeds"] for row in shown} == {"0"}


def test_exact_and_sampled_metrics_are_compared_with_the_rival_of_the_verdict():
    """Validation chooses it, and no number of test."""
    path = ROOT / "results/reference/tables/verdicts.csv"
    with path.open(encoding="utf-8", newline="") as stream:
        verdicts = {(row["claim"], row["dataset"], row["metric"]): row for row in csv.DictReader(stream)}
    for row in rows("exact"):
        verdict = verdicts["pfedrec-beats-federated", row["dataset"], row["metric"]]
        assert row["rival"] == verdict["clean_compared_with"]
        assert row["difference"] == f"{float(verdict['clean']):+.4f}"


def test_the_front_page_is_short():
    assert len(README.encode()) < 8000


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)#\s]+)[^)]*\)", text) if "://" not in link]
    assert [link for link in links if not (page.parent / link).exists()] == []


def commands_of(page):
    """Lines of code on a page, with the lines that a backslash joins to them."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    lines = re.findall(r"^(?: {4}|)((?:\w+=\S+ )*(?:snakemake|fedrec|make|nohup) .*)$", text, re.M)
    return [*lines, *re.findall(r"`((?:snakemake|fedrec|make) [^`]*)`", text)]


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_command_with_configuration_has_its_targets_after_dashes(page):
    """Without `--` Snakemake takes a target for a value of `--config`, and answers with a traceback."""
    given = [one for one in commands_of(page) if "--config " in one]
    assert [one for one in given if " -- " not in one.partition("--config ")[2]] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_no_link_leads_to_a_page_that_a_forge_shows_as_source(page):
    """A page for a browser is named with its path, to open after cloning."""
    assert re.findall(r"\]\(([^)\s]+\.html[^)]*)\)", page.read_text(encoding="utf-8")) == []


def test_readme_and_makefile_name_the_same_minutes_of_the_tests():
    """Whoever types `make test` next to the demonstration learns first how long it takes."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (on_page,) = re.findall(r"^    make test +# .*?(\d+ minutes on 2 cores)", README, re.M)
    (in_file,) = re.findall(r"^test: .*?(\d+ minutes on 2 cores)$", makefile, re.M)
    assert on_page == in_file
    for command in ("make demo", "fedrec reference build"):
        assert re.search(rf"^    {command} .*#.*\d+ minutes", README, re.M), command


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_files_named_in_prose_exist(page):
    named = re.findall(
        r"`((?:fedrec|tests|config|workflow|profiles|benchmarks|docs)/[\w./-]+\.\w+)`",
        page.read_text("utf-8"),
    )
    assert [name for name in named if not (ROOT / name).exists() and name not in EXAMPLES] == []


def functions_of(path):
    """The names of a module's functions and methods, a method as `Class.method`."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield from (f"{node.name}.{one.name}" for one in node.body if isinstance(one, ast.FunctionDef))


def test_every_stop_from_a_local_round_to_a_kernel_is_a_function():
    page = (ROOT / "docs/engine.md").read_text(encoding="utf-8")
    stops = page.partition("**From `local_round` to the text of a kernel.**")[2].partition("\n**")[0]
    named = re.findall(r"^\d+\. `([\w/]+\.py)`: `([\w.]+)`", stops, re.MULTILINE)
    assert len(named) == len(re.findall(r"^\d+\.", stops, re.MULTILINE)) > 8
    assert [stop for stop in named if stop[1] not in functions_of(ROOT / stop[0])] == []


def test_every_package_and_engine_is_in_the_list_of_packages():
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    listed = page.partition("## Packages")[2].partition("\n## ")[0]
    folders = {path.parent.name for path in (ROOT / "fedrec").glob("*/__init__.py")}
    assert folders
    assert {name for name in folders if not re.search(rf"(?<![\w/])(fedrec/)?{name}/", listed)} == set()
    assert {name for name in ENGINES if not re.search(rf"\b{name}\b", listed)} == set()


def test_what_the_configuration_has_of_a_search_is_what_its_kept_table_chose():
    methods = load_methods(ROOT / "config/methods.yaml")
    searches = load_tuning(ROOT / "config/tuning.yaml", methods).searches.values()
    kept = {search: trials for search in searches if (trials := frozen_trials(search.target))}
    for search, trials in kept.items():
        found = finding_of(methods, search)
        assert found is not None
        assert found.trials == len(trials)
        (chosen,) = (trial for trial in trials if trial["chosen"] == "True")
        assert {name: setting_text(value) for name, value in found.settings.items()} == {
            one.setting: chosen[one.setting] for one in search.ranges
        }


def test_what_is_published_was_built_from_the_runs_that_are_stored():
    """If not: fedrec reference build --publish."""
    store = ROOT / "results/reference"
    assert read_checked_json(store / PUBLISHED_FROM)["runs"] == store_checksum(store)
    # What it tells its reader to type is about runs, not about the folder that it was built in.
    with (ROOT / "results/reference/tables/verdicts.csv").open(encoding="utf-8", newline="") as stream:
        assert not [row for row in csv.DictReader(stream) if "from-reference" in row["command"]]
