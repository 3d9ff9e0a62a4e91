# Configuration and the functions rules are written with. No rules here.


import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from fedrec.composition import SPELLING
from fedrec.data.availability import (
    why_file_unavailable,
    why_split_unavailable,
    why_unavailable,
)
from fedrec.data.catalogue import load_catalogue
from fedrec.data.protocols import load_protocols, protocol_named
from fedrec.errors import FedrecError
from fedrec.files import canonical_json
from fedrec.provenance import sources_of
from fedrec.registry import modules_of
from fedrec.schema import Document, check, load
from fedrec.settings import canonical, canonical_all, resolve, title


def read_configuration():
    """The catalogue and the protocols; a mistake in any file is an error before any job runs."""
    try:
        check(Document("configuration", dict(config)), "config")
        catalogue = load_catalogue(Path(config["catalogue"]))
        protocols = load_protocols(Path(config["protocol_file"]))
        methods = load(Path(config["method_file"]), "methods").content
        for dataset in config["datasets"]:
            catalogue[dataset]
        config["methods"] = canonical_all(methods, config["methods"])
        for method in config["methods"]:
            resolve(methods, method, config["paper"], "")
            modules_of(method)
        for protocol in config["protocols"]:
            if protocol != "published":
                protocol_named(protocols, protocol)
        return catalogue, protocols, methods
    except FedrecError as error:
        raise WorkflowError(str(error)) from None


CATALOGUE, PROTOCOLS, METHODS = read_configuration()
RAW = Path(config["results"]) / "raw"
MIRROR = os.environ.get("FEDREC_MIRROR") or config["mirror"]
MIRROR = Path(MIRROR) if MIRROR else None
# Jobs find the `fedrec` command of this environment, activated or not, and the mirror.
shell.prefix(
    # A prefix of our own replaces Snakemake's, which is the first line here.
    "set -euo pipefail; "
    f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH"
    f" FEDREC_MIRROR={shlex.quote(str(MIRROR or ''))}; "
)


def results(path):
    """A path below the results folder."""
    return f"{config['results']}/{path}"


def code(*modules):
    """The sources a job that runs `modules` depends on, as paths below this folder where possible."""
    return [os.path.relpath(path) for path in sources_of(*modules)]


def unavailable(names):
    """Why datasets of `names`, or splits of them (`dataset/protocol`), cannot be had here."""
    reasons = {}
    for name in names:
        dataset = CATALOGUE[name]
        reasons[name] = why_unavailable(dataset, RAW, MIRROR)
        for paper in dataset.row_orders:
            if reasons[name] is None:
                reasons[f"{name}/published-{paper}"] = why_split_unavailable(
                    dataset, paper, RAW, MIRROR
                )
    return {what: reason for what, reason in reasons.items() if reason is not None}


def available(names):
    """The datasets of `names` that can be had here."""
    missing = unavailable(names)
    return [name for name in names if name not in missing]


def protocols_of(dataset, protocols):
    """The names behind `protocols` for one dataset: `published` is each of its papers' own.

    A paper's protocol is left out, and listed in the table of statistics, where its own order
    of rows cannot be had.
    """
    missing = unavailable([dataset])
    expanded = []
    for protocol in protocols:
        if protocol == "published":
            own = [f"published-{paper}" for paper in CATALOGUE[dataset].papers]
            expanded += [name for name in own if f"{dataset}/{name}" not in missing]
        else:
            expanded.append(protocol)
    return expanded


def splits_of(datasets, protocols):
    """The split files of each dataset for each of `protocols`."""
    return [
        results(f"data/{dataset}/{protocol}/{file}.parquet")
        for dataset in datasets
        for protocol in protocols_of(dataset, protocols)
        for file in ("split", "candidates")
    ]


def raw_files_of(wildcards):
    """The raw files of a dataset; welcome ones (titles, row orders) only where they can be had."""
    dataset = CATALOGUE[wildcards.dataset]
    welcome = dataset.welcome_files()
    return [
        str(RAW / file.path)
        for file in dataset.files()
        if file not in welcome or why_file_unavailable(file, RAW, MIRROR) is None
    ]


# The selections of datasets a table of statistics is made of.
SELECTIONS = {
    "dataset": list(CATALOGUE),
    "selected": config["datasets"],
    "demo": ["demo"],
}


def statistics_table(selection):
    """The three forms of the table of statistics of one selection."""
    return [
        results(f"tables/{selection}_statistics.{form}")
        for form in ("csv", "md", "tex")
    ]


RUN = "runs/{paper}/{dataset}/{kind}/{method}/seed{seed}"


def run_file(name):
    """The path of one of a run's files, with the run's wildcards."""
    return results(f"{RUN}/{name}")


def run_split(wildcards, file):
    """The split a run reads: of its paper's protocol, or the clean one."""
    published = wildcards.kind == "published"
    protocol = f"published-{wildcards.paper}" if published else wildcards.kind
    return results(f"data/{wildcards.dataset}/{protocol}/{file}.parquet")


def run_code(wildcards):
    """The sources of a run, whose path must spell its method canonically: one run has one path."""
    spelling = canonical(METHODS, wildcards.method)
    if spelling != wildcards.method:
        raise WorkflowError(f"'{wildcards.method}' in a path is spelt '{spelling}'.")
    return code("fedrec.run", *modules_of(spelling))


def changes_of(wildcards):
    """What a run sets differently from its paper and its name: the demonstration trains for fewer rounds."""
    values, sources, _ = resolve(
        METHODS, wildcards.method, wildcards.paper, wildcards.dataset
    )
    shortened = wildcards.dataset == "demo" and sources["rounds"] != "user"
    if shortened and values["rounds"] > config["demo_rounds"]:
        return [f"rounds={config['demo_rounds']}"]
    return []


def run_settings(wildcards):
    """Every setting of a run in one canonical line: a change of one re-runs what uses it."""
    values, _, _ = resolve(
        METHODS,
        wildcards.method,
        wildcards.paper,
        wildcards.dataset,
        changes_of(wildcards),
    )
    return canonical_json(values)


def paper_of(dataset):
    """The paper whose settings runs on a dataset follow, of those whose split can be had."""
    missing = unavailable([dataset])
    papers = [
        paper
        for paper in CATALOGUE[dataset].papers
        if f"{dataset}/published-{paper}" not in missing
    ]
    return config["paper"] if config["paper"] in papers else papers[0]


def compared_runs(dataset):
    """The runs a dataset's comparison is made of."""
    return [
        results(f"{RUN}/run.json").format(
            paper=paper_of(dataset),
            dataset=dataset,
            kind=kind,
            method=method,
            seed=seed,
        )
        for method in config["methods"]
        for kind in ("published", "clean")
        for seed in config["seeds"]
    ]


def comparison_of(datasets):
    """The three forms of the table that compares methods, for each dataset."""
    return [
        results(f"tables/{dataset}_comparison.{form}")
        for dataset in datasets
        for form in ("csv", "md", "tex")
    ]
