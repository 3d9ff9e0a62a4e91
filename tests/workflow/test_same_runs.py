"""`fedrec artefacts`, `fedrec plan`, `fedrec status` and Snakemake name the same runs to train after an edit."""

import json
import re
from collections import Counter
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fedrec.config.protocol import rules_name
from tests.workflow.test_workflow import built, copied

__all__ = ["built", "copied"]
TARGET = "pfedrec_table9"
ARTEFACT = {
    "title": "Two quick methods",
    "layout": "metrics",
    "datasets": ["alpha"],
    "metrics": ["hr@10"],
    "lines": [{"run": "popularity"}, {"run": "draw-counter[rounds=2]"}],
}
"""A table of a paper whose runs are those of the comparison, which are trained."""
CODE = ("fedrec/methods/draw_counter.py", "\nclass ", "\nEDITED = True\n\n\nclass ")
DRAWS = """value: 100, source: ours}
    negatives: {meaning: training negatives per positive, type: integer, range: [1, 1000], value: 4"""
"""Settings of the draw-counter as its entry spells them."""
SETTING = ("config/methods.yaml", DRAWS, DRAWS.replace("value: 4", "value: 5"))
LIST = "runs.jsonl"
COMMANDS = f"""
from fedrec.cli.main import main

for words in (
    ["plan", "{TARGET}"],
    ["artefacts", "{TARGET}"],
    ["status", "{TARGET}", "--json"],
    ["status", "{LIST}", "--json"],
):
    assert not main(words)
    print("====")
"""
"""The three commands in one process, so that Python starts once; one of them takes a list of runs, too."""


@contextmanager
def edited(checkout, path, old, new):
    """A file of the checkout with a text replaced, until the end of the block."""
    file = checkout.folder / path
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new))
    yield
    file.write_text(text)


@contextmanager
def ruled(checkout, protocol, **values):
    """The protocols of the checkout with other values in one of them, until the end of the block."""
    file = checkout.folder / "config/protocols.yaml"
    text = file.read_text()
    # Those with other seeds alone have the same rules.
    checkout.edit(
        "config/protocols.yaml",
        lambda known: known | {name: known[name] | values for name in known if rules_name(name) == protocol},
    )
    yield
    file.write_text(text)


def runs_to_train(checkout):
    """The folders below `runs/` that each of the four names as runs to train, and those that a list does."""
    plan, papers, *states, _ = checkout.python("-c", COMMANDS).split("====\n")
    planned = {_below_runs(json.loads(line)["out"]) for line in plan.splitlines()}
    waiting, of_list = ({_below_runs(run["folder"]) for run in json.loads(state)["each"] if run["state"] != "done"} for state in states)  # fmt: skip
    jobs = checkout.planned(TARGET).get("train", [])
    by_snakemake = {"/".join(job.values()) for job in jobs}
    # `fedrec artefacts` counts runs by dataset and protocol, and names none.
    counted = Counter(tuple(folder.split("/")[1:3]) for folder in planned)
    assert _unfinished_by_papers(papers) == counted
    assert planned == waiting == by_snakemake
    return planned, of_list


def _below_runs(folder):
    return Path(folder).as_posix().rpartition("/runs/")[2]


def _unfinished_by_papers(text):
    found = re.findall(r"^ +(\S+), (\S+): (\d+) of (\d+) done$", text, flags=re.MULTILINE)
    assert found
    return +Counter({(dataset, protocol): int(every) - int(done) for dataset, protocol, done, every in found})


def test_every_command_names_the_same_runs_to_train_after_an_edit(copied):
    """Two edits at once, each of which outdates runs that the other leaves alone."""
    copied.edit(
        "config/papers/pfedrec.yaml",
        lambda paper: paper | {"artefacts": paper["artefacts"] | {"table9": ARTEFACT}},
    )
    copied.write(LIST, copied.fedrec("plan", TARGET, "--include-finished"))
    every = {_below_runs(json.loads(line)["out"]) for line in (copied.folder / LIST).read_text().splitlines()}
    counting = {folder for folder in every if "draw-counter" in folder}
    clean = {folder for folder in every if "/clean/" in folder}
    assert (len(every), len(counting), len(clean), len(counting & clean)) == (4, 2, 2, 1)

    assert runs_to_train(copied) == (set(), set())
    with ExitStack() as edits:
        edits.enter_context(edited(copied, *SETTING))
        edits.enter_context(ruled(copied, "published-pfedrec", candidates=50))
        # A list leaves the protocol to the split, which is still the one that its runs were trained on.
        assert runs_to_train(copied) == (counting | (every - clean), counting)
    # The rule for the round leaves the content of a split alone.
    with ExitStack() as edits:
        edits.enter_context(edited(copied, *CODE))
        edits.enter_context(ruled(copied, "clean", round_rule="last"))
        copied.snakemake(str(copied.result("data/alpha/clean/split.parquet").relative_to(copied.folder)))
        assert runs_to_train(copied) == (counting | clean, counting | clean)
