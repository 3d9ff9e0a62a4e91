# Configuration and the functions rules are written with. No rules here.


import os
import shlex
import sys
from dataclasses import asdict
from functools import cache
from pathlib import Path

from snakemake.exceptions import WorkflowError

from fedrec.plan.steps import protocol_steps, runs_of_step, steps
from fedrec.config.claims import load_claims
from fedrec.config.names import FOLDER_NAME, folder_name, spelling_of
from fedrec.plan.available import (
    can_be_built,
    why_file_unavailable,
    why_split_unavailable,
    why_unavailable,
)
from fedrec.config.catalogue import load_catalogue
from fedrec.config.protocol import SWITCHES, short_name
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.errors import FedrecError
from fedrec.config.records import merged_records, spelled_records
from fedrec.files.atomic import canonical_json
from fedrec.config.papers import (
    PICTURES,
    UNTRAINED,
    artefacts_of,
    load_papers,
)
from fedrec.plan.runs import RunId, run_of, shortened
from fedrec.plan.selection import records_of, runs_of, runs_of_claim
from fedrec.plan.fingerprint import sources_of
from fedrec.config.printed import printed_for
from fedrec.config.modules import modules_of
from fedrec.reporting.overview import seconds_of
from fedrec.config.document import Document, check, load
from fedrec.config.methods import canonical, canonical_all, resolve, title


def read_configuration():
    """The catalogue and the protocols; a mistake in any file is an error before any job runs."""
    try:
        check(Document("configuration", dict(config)), "config")
        catalogue = load_catalogue(Path(config["catalogue"]))
        protocols = load_protocols(Path(config["protocol_file"]))
        methods = load(Path(config["method_file"]), "methods").content
        for dataset in config["datasets"]:
            catalogue[dataset]
        papers = load_papers(Path(config["paper_folder"]))
        for artefact in artefacts_of(papers, papers):
            for line in artefact.lines:
                if line.run is not None:
                    canonical(methods, line.run)
        artefacts_of(papers, config["artefacts"])
        claims = load_claims(Path(config["claim_file"]), papers)
        config["methods"] = canonical_all(methods, config["methods"])
        audit = config["audit"]
        audit["methods"] = canonical_all(methods, audit["methods"])
        audit["uploads"] = canonical_all(methods, audit["uploads"])
        for method in config["methods"] + audit["methods"] + audit["uploads"]:
            resolve(methods, method, config["paper"], "")
            modules_of(method)
        for protocol in config["protocols"]:
            if protocol != "published":
                protocol_named(protocols, protocol)
        return catalogue, protocols, methods, papers, claims
    except FedrecError as error:
        raise WorkflowError(str(error)) from None


CATALOGUE, PROTOCOLS, METHODS, PAPERS, CLAIMS = read_configuration()
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
        if name not in CATALOGUE:
            reasons[name] = f"it is not in {config['catalogue']}"
            continue
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
    "dataset": CATALOGUE.whole(),
    "selected": config["datasets"],
    "demo": ["demo"],
}


def statistics_table(selection):
    """The three forms of the table of statistics of one selection."""
    return [
        results(f"tables/{selection}_statistics.{form}")
        for form in ("csv", "md", "tex")
    ]


RUN = "runs/{paper}/{dataset}/{protocol}/{method}/seed{seed}"


def run_file(name):
    """The path of one of a run's files, with the run's wildcards."""
    return results(f"{RUN}/{name}")


def run_split(wildcards, file):
    """The split a run reads: of its paper's protocol, a step from it, or the clean one."""
    return results(f"data/{wildcards.dataset}/{wildcards.protocol}/{file}.parquet")


def run_of_wildcards(wildcards):
    """The run that a path names."""
    return RunId(
        wildcards.paper,
        wildcards.dataset,
        wildcards.protocol,
        spelling_of(wildcards.method),
        int(wildcards.seed),
    )


def run_code(wildcards):
    """The sources of a run, whose path must spell its method canonically: one run has one path."""
    spelling = canonical(METHODS, spelling_of(wildcards.method))
    if folder_name(spelling) != wildcards.method:
        raise WorkflowError(
            f"'{wildcards.method}' in a path is spelt '{folder_name(spelling)}'."
        )
    return code("fedrec.runs.train", *modules_of(spelling))


def run_keeps(wildcards):
    """What a run keeps for what looks inside it, figures and attackers, whatever target is asked for."""
    run = run_of_wildcards(wildcards)
    traffic = ["traffic"] if run in attacked_runs(wildcards.dataset) else []
    return spelled_records(merged_records([*KEEPS.get(run, []), *traffic]))


def run_settings(wildcards):
    """Every setting of a run in one canonical line: a change of one re-runs what uses it."""
    values, _, _ = resolve(
        METHODS, spelling_of(wildcards.method), wildcards.paper, wildcards.dataset
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


def rounds_of(dataset):
    """The rounds that the configuration, or the demonstration, asks for; None for each paper's own."""
    return config["demo_rounds"] if dataset == "demo" else config["rounds"]


def compared_runs(dataset):
    """The runs a dataset's comparison is made of."""
    return [
        run_of(METHODS, paper_of(dataset), dataset, kind, method, seed)
        for method in shortened(
            METHODS, config["methods"], paper_of(dataset), dataset, rounds_of(dataset)
        )
        for kind in ("published", "clean")
        for seed in config["seeds"]
    ]


def comparison_of(datasets):
    """The table that compares methods, and their curves over rounds, for each dataset."""
    return [
        results(path)
        for dataset in datasets
        for path in (
            *(f"tables/{dataset}_comparison.{form}" for form in ("csv", "md", "tex")),
            *(
                f"figures/{dataset}_convergence.{form}"
                for form in ("csv", "pdf", "png", "txt")
            ),
        )
    ]


ARTEFACTS = {one.target: one for one in artefacts_of(PAPERS, PAPERS)}
KEEPS = records_of(PAPERS, METHODS, config["seeds"])


def names_of(form):
    """A pattern for the names of all tables, or all figures, of the papers."""
    return "|".join(name for name, one in ARTEFACTS.items() if one.form == form)


def buildable(artefact):
    """Whether anything of an artefact can be built here."""
    return can_be_built(artefact, unavailable(artefact.datasets))


def files_of(artefacts):
    """The files of those of the artefacts that can be built; the report lists the rest with the reason."""
    return [
        results(file)
        for artefact in artefacts
        if buildable(artefact)
        for file in artefact.files
    ]


def artefact_inputs(wildcards):
    """What an artefact is made from: its runs, and the statistics and rows of its datasets."""
    artefact = ARTEFACTS[wildcards.artefact]
    datasets = available(artefact.datasets)
    found = {}
    if artefact.layout not in UNTRAINED:
        missing = unavailable(artefact.datasets)
        groups = runs_of(artefact, METHODS, config["seeds"], missing).values()
        runs = sorted({run for group in groups for run in group})
        found["runs"] = [results(f"{run.folder}/run.json") for run in runs]
        methods = {run.method for run in runs}
        if artefact.layout in PICTURES:
            found["states"] = [
                results(f"{run.folder}/state.safetensors") for run in runs
            ]
        over = artefact.options.get("space_over")
        if over or artefact.layout in (*PICTURES, "bubbles", "groups"):
            found["splits"] = [
                run_split(run, file) for run in runs for file in ("split", "candidates")
            ]
            models = {*methods, over} - {None}
            found["models"] = code(
                *sorted({name for method in models for name in modules_of(method)})
            )
    if artefact.layout == "curricula":
        found["models"] = code(*modules_of("fedrap"))
    if artefact.layout in ("statistics", "space", "effort", "bubbles"):
        found["statistics"] = [
            results(f"data/{one}/statistics.json") for one in datasets
        ]
    if "users" in artefact.options:
        found["rows"] = [
            results(f"data/{one}/interactions.parquet") for one in datasets
        ]
    return found


def artefact_content(name):
    """Everything that decides an artefact besides its inputs, in one canonical line."""
    artefact = ARTEFACTS[name]
    return canonical_json(
        {
            "artefact": asdict(artefact),
            "seeds": config["seeds"],
            "printed": printed_for(artefact),
            "titles": [title(METHODS, one.run) for one in artefact.lines if one.run],
            "unavailable": unavailable(artefact.datasets),
        }
    )


def artefact_command(name):
    """The command that builds an artefact."""
    missing = unavailable(ARTEFACTS[name].datasets)
    words = [
        "fedrec", "artefact", name,
        "--results", config["results"],
        "--papers", config["paper_folder"],
        "--methods", config["method_file"],
        "--catalogue", config["catalogue"],
        "--unavailable", canonical_json(missing),
        "--seeds", *map(str, config["seeds"]),
    ]  # fmt: skip
    return shlex.join(words)


def report_inputs(datasets, selection, artefacts, audit=()):
    """What a report is made of: comparisons, statistics, artefacts, audit and every run behind them."""
    runs = {run for dataset in datasets for run in compared_runs(dataset)}
    if audit:
        runs |= audited_runs(datasets)
    for artefact in artefacts:
        if artefact.layout not in UNTRAINED and buildable(artefact):
            missing = unavailable(artefact.datasets)
            groups = runs_of(artefact, METHODS, config["seeds"], missing).values()
            runs |= {run for group in groups for run in group}
    return {
        "compared": comparison_of(datasets),
        "statistics": statistics_table(selection),
        "artefacts": files_of(artefacts),
        "audit": audit_files() if audit else [],
        "runs": [results(f"{run.folder}/run.json") for run in sorted(runs)],
    }


def report_words(datasets, selection, artefacts, audit=()):
    """The command that writes a report, but for its runs and its place."""
    missing = unavailable(
        [*datasets, *(name for one in artefacts for name in one.datasets)]
    )
    words = [
        "fedrec", "report",
        "--results", config["results"],
        "--papers", config["paper_folder"],
        "--datasets", *datasets,
        "--statistics", selection,
        "--artefacts", *(one.target for one in artefacts),
        "--audit", *audit,
        "--unavailable", canonical_json(missing),
    ]  # fmt: skip
    return shlex.join(words)


def chosen_artefacts():
    """The tables and figures of papers that the configuration asks for."""
    return artefacts_of(PAPERS, config["artefacts"])


def audit_of(dataset):
    """The steps that the audit takes methods through on a dataset."""
    return protocol_steps(
        METHODS,
        config["audit"]["methods"],
        dataset=dataset,
        paper=paper_of(dataset),
        rounds=rounds_of(dataset),
        switches=config["audit"]["switches"],
        distinct_pairs=CATALOGUE[dataset].distinct_pairs,
    )


def main_comparison(paper):
    """The table that a paper's first claim is about."""
    return next(claim for claim in CLAIMS if claim.paper == paper).artefacts[0]


def compared_in(paper):
    """The methods of a paper's main comparison."""
    return [line.run for line in main_comparison(paper).lines if line.run is not None]


def claimed_datasets():
    """The datasets that claims are about, in the catalogue or not."""
    return sorted({dataset for claim in CLAIMS for dataset in claim.datasets})


def claimed_runs(paper):
    """The runs of all claims of a paper, with its own settings, on the datasets that can be had."""
    missing = unavailable(claimed_datasets())
    return sorted(
        {
            run
            for claim in CLAIMS
            if claim.paper == paper
            for run in runs_of_claim(claim, METHODS, config["seeds"], None, missing)
        }
    )


def audit_of_paper(paper):
    """The same for the methods of a paper's main comparison, on its datasets, with its own settings."""
    main = main_comparison(paper)
    missing = unavailable(main.datasets)
    return [
        protocol_steps(
            METHODS,
            compared_in(paper),
            dataset=dataset,
            paper=paper,
            rounds=None,
            switches=SWITCHES,
            distinct_pairs=CATALOGUE[dataset].distinct_pairs,
        )
        for dataset in main.datasets
        if dataset not in missing and f"{dataset}/published-{paper}" not in missing
    ]


def stepped_runs(ladders):
    """The runs that all steps of some ladders read."""
    return sorted(
        {
            run
            for ladder in ladders
            for step in steps(ladder, PROTOCOLS)
            for runs in runs_of_step(ladder, METHODS, step, config["seeds"]).values()
            for run in runs
        }
    )


@cache
def attacked_runs(dataset):
    """The runs whose uploads are attacked."""
    if dataset not in config["datasets"]:
        return frozenset()
    paper = paper_of(dataset)
    names = shortened(
        METHODS, config["audit"]["uploads"], paper, dataset, rounds_of(dataset)
    )
    return frozenset(
        run_of(METHODS, paper, dataset, "clean", name, seed)
        for name in names
        for seed in config["seeds"]
    )


def exposed_runs(datasets):
    """The runs whose draws are counted: those compared, and those that tell what becomes of their hits."""
    found = {run for dataset in datasets for run in compared_runs(dataset)}
    audited = stepped_runs([audit_of(dataset) for dataset in datasets])
    return sorted(
        found | {run for run in audited if short_name(run.protocol) == "only-pool"}
    )


def audited_runs(datasets):
    """Every run that the audit of some datasets reads."""
    stepped = stepped_runs([audit_of(dataset) for dataset in datasets])
    attacked = {run for dataset in datasets for run in attacked_runs(dataset)}
    return {*stepped, *exposed_runs(datasets), *attacked}


def judged_runs(datasets):
    """The runs of claims that the configuration trains anyway."""
    trained = set(exposed_runs(datasets))
    missing = unavailable(datasets)
    return sorted(
        {
            run
            for claim in CLAIMS
            for run in runs_of_claim(
                claim, METHODS, config["seeds"], config["rounds"], missing
            )
            if run in trained
        }
    )


def files_of_runs(runs, name="run.json"):
    """One of the files of each run."""
    return [results(f"{run.folder}/{name}") for run in runs]


def table_files(name):
    """The three forms of a table."""
    return [results(f"tables/{name}.{form}") for form in ("csv", "md", "tex")]


def figure_files(name):
    """A figure, what it shows and its caption."""
    return [results(f"figures/{name}.{form}") for form in ("csv", "pdf", "png", "txt")]


AUDIT_TABLES = (
    "audit_protocols",
    "audit_exposure",
    "audit_uploads",
    "audit_significance",
    "audit_granularity",
    "verdicts",
)


def reported_audit():
    """The tables of the audit: none where no dataset of it can be had, and none of uploads without any to attack."""
    if not available(config["datasets"]):
        return []
    attacked = bool(config["audit"]["uploads"])
    return [name for name in AUDIT_TABLES if attacked or name != "audit_uploads"]


def audit_files():
    """Everything the audit of the configuration consists of."""
    names = reported_audit()
    tables = [file for name in names for file in table_files(name)]
    return [*tables, *(figure_files("audit_ranks") if names else [])]


def ladder_words(ladders, methods, switches, rounds):
    """What the command that writes a table of steps is told of them; `rounds` is a function of the dataset."""
    followed = {
        ladder.dataset: (ladder.paper, rounds(ladder.dataset)) for ladder in ladders
    }
    words = [
        "--datasets",
        *(
            f"{dataset}={paper}" + ("" if most is None else f"={most}")
            for dataset, (paper, most) in followed.items()
        ),
        "--names", *methods,
        "--switches", *switches,
        "--seeds", *map(str, config["seeds"]),
        "--results", config["results"],
        "--methods", config["method_file"],
        "--protocols", config["protocol_file"],
        "--catalogue", config["catalogue"],
    ]  # fmt: skip
    return shlex.join(words)


def verdict_words(rounds):
    """What the command that judges claims is told."""
    words = [
        *(["--rounds", str(rounds)] if rounds is not None else []),
        "--seeds", *map(str, config["seeds"]),
        "--results", config["results"],
        "--papers", config["paper_folder"],
        "--methods", config["method_file"],
        "--claims", config["claim_file"],
        "--unavailable", canonical_json(unavailable(claimed_datasets())),
    ]  # fmt: skip
    return shlex.join(words)


def announcement(jobs, cores):
    """How many runs are to be trained, and about how long that takes: a guess, from times on one CPU core."""
    runs = [run_of_wildcards(job.wildcards) for job in jobs if job.rule.name == "train"]
    seconds = sum(seconds_of(run, METHODS, CATALOGUE) for run in runs)
    if not runs:
        return "fedrec: nothing to train."
    minutes = seconds / 60 / (cores or 1)
    return (
        f"fedrec: {len(runs)} runs to train, about {max(1, round(minutes))} minutes on {cores} CPU cores; "
        "with a GPU, far less."
    )
