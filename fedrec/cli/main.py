"""The `fedrec` command: arguments in, one call, files out.

Commands import what they need when they run, so that each starts fast and needs no more
packages than its own work does.
"""

import argparse
import json
import logging
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from fedrec import __version__
from fedrec.cli.audit import add_audit
from fedrec.errors import ConfigurationError, FedrecError, SourceError

_CATALOGUE = Path("config/datasets.yaml")
_PROTOCOLS = Path("config/protocols.yaml")
_METHODS = Path("config/methods.yaml")
_PAPERS = Path("config/papers")
_RESULTS = Path("results")
_RAW = Path("results/raw")
MIRROR_VARIABLE = "FEDREC_MIRROR"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit status is 0, or 1 after an error message."""
    parsed = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO, format="%(message)s", stream=sys.stderr)
    command: Callable[[argparse.Namespace], None] = parsed.command
    try:
        command(parsed)
        sys.stdout.flush()
    except FedrecError as error:
        print(f"fedrec: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # Whoever read the output (`| head`) has enough; keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        print("fedrec: interrupted; nothing half-written was kept.", file=sys.stderr)
        return 130
    return 0


def _datasets(parsed: argparse.Namespace) -> None:
    """List the catalogue and what is at hand."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.plan.available import is_at_hand

    for name, dataset in load_catalogue(parsed.catalogue).items():
        missing = [file.path for file in dataset.files() if not is_at_hand(file, parsed.raw, parsed.mirror)]
        state = "to be fetched" if missing else "at hand"
        print(f"{name:<16} {state:<14} {dataset.title}. Licence: {dataset.licence}.")


def _methods(parsed: argparse.Namespace) -> None:
    """List every method and plug-in: its paper, its kind, where its parameters live, what it uploads."""
    from fedrec.config.methods import load_methods
    from fedrec.runs.cards import cards, listed

    print(listed(cards(load_methods(parsed.methods))))


def _fetch(parsed: argparse.Namespace) -> None:
    """Fetch raw files."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.data.fetch import fetch

    catalogue = load_catalogue(parsed.catalogue)
    if parsed.what in catalogue.raw_files():
        fetch(catalogue.raw_file(parsed.what), parsed.raw / parsed.what, parsed.mirror)
        return
    dataset = catalogue[parsed.what]
    for file in dataset.files():
        try:
            fetch(file, parsed.raw / file.path, parsed.mirror)
        except SourceError as error:
            if file not in dataset.welcome_files():
                raise
            print(f"{dataset.name} will do without {error}", file=sys.stderr)


def _prepare(parsed: argparse.Namespace) -> None:
    """Parse and filter a dataset."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.data.prepare import prepare, write_prepared

    dataset = load_catalogue(parsed.catalogue)[parsed.dataset]
    write_prepared(prepare(dataset, parsed.raw), dataset, parsed.raw, parsed.out)


def _split(parsed: argparse.Namespace) -> None:
    """Split a prepared dataset by a protocol."""
    from fedrec.config.protocol_file import load_protocols, protocol_named
    from fedrec.data.interactions import read_interactions_file
    from fedrec.data.split import make_split, write_split

    protocol = protocol_named(load_protocols(parsed.protocols), parsed.protocol)
    split = make_split(read_interactions_file(parsed.data / "interactions.parquet"), protocol)
    if len(split.dropped):
        print(
            f"{split.dataset}, {protocol.name}: {len(split.dropped)} users have too few rows, or unseen "
            "items, to be split and take no part; they are listed in the metadata of split.parquet.",
            file=sys.stderr,
        )
    write_split(split, parsed.data / protocol.name)


def _describe(parsed: argparse.Namespace) -> None:
    """Statistics of a dataset and its splits."""
    from fedrec.data.interactions import read_interactions_file
    from fedrec.data.split import read_split
    from fedrec.data.statistics import describe_interactions, describe_split
    from fedrec.files.atomic import write_text

    described = describe_interactions(read_interactions_file(parsed.data / "interactions.parquet"))
    described["splits"] = {name: describe_split(read_split(parsed.data / name)) for name in parsed.protocol}
    write_text(parsed.out, json.dumps(described, indent=2) + "\n")


def _table(parsed: argparse.Namespace) -> None:
    """Write the table of dataset statistics."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.plan.fingerprint import code_fingerprint
    from fedrec.reporting.dataset_statistics import statistics_rows, statistics_tables
    from fedrec.reporting.tables import write_forms

    described = {}
    for path in parsed.statistics:
        statistics = json.loads(path.read_text(encoding="utf-8"))
        described[statistics["dataset"]] = statistics
    rows = statistics_rows(load_catalogue(parsed.catalogue), described, json.loads(parsed.unavailable))
    if not rows:
        raise ConfigurationError("no dataset was given to tabulate.")
    write_forms(
        parsed.out, rows, statistics_tables(rows, code_fingerprint("fedrec.reporting.dataset_statistics"))
    )


def _train(parsed: argparse.Namespace) -> None:
    """Train a method on a split."""
    from fedrec.runs.train import train

    train(
        data=parsed.data,
        method=parsed.method,
        paper=parsed.paper,
        protocol=parsed.protocol,
        seed=parsed.seed,
        out=parsed.out,
        changes=parsed.set,
        engine=parsed.engine,
        device=parsed.device,
        methods_file=parsed.methods,
        memory_gib=parsed.memory,
        checkpoint_seconds=parsed.checkpoint_seconds,
        record=parsed.record,
    )


def _compare(parsed: argparse.Namespace) -> None:
    """Write the table that compares runs."""
    from fedrec.config.methods import load_methods, title
    from fedrec.config.protocol import short_name
    from fedrec.reporting.comparison import comparison_rows, comparison_table
    from fedrec.reporting.results import read_result
    from fedrec.reporting.significances import marks, significance_rows
    from fedrec.reporting.tables import write_forms

    methods = load_methods(parsed.methods)
    runs = [json.loads(path.read_text(encoding="utf-8")) for path in parsed.runs]
    # The caption says once how many rounds most have been given; the others say it themselves.
    given = Counter(run["settings"]["rounds"] for run in runs if run["sources"]["rounds"] == "user")
    usual = [rounds for rounds, _ in given.most_common(1)]
    titles = {
        run["method"]: title(methods, run["method"], ["rounds"] if run["settings"]["rounds"] in usual else [])
        for run in runs
    }
    found = marks(significance_rows([read_result(path.parent) for path in parsed.runs], methods))
    rows = [
        {"title": titles[row["method"]], **row}
        | {
            f"{metric}_mark": mark
            for (paper, method, kind, metric), mark in found.items()
            if (paper, method, kind) == (row["paper"], row["method"], short_name(row["protocol"]))
        }
        for row in comparison_rows(runs)
    ]
    write_forms(parsed.out, rows, [comparison_table(rows, runs[0]["dataset"], titles)])


def _convergence(parsed: argparse.Namespace) -> None:
    """Draw the curves of runs over rounds."""
    from fedrec.config.methods import load_methods
    from fedrec.reporting.figures import convergence_of

    convergence_of(parsed.runs, load_methods(parsed.methods), parsed.out)


def _report(parsed: argparse.Namespace) -> None:
    """Write the page of all results."""
    from fedrec.config.papers import artefacts_of, load_papers
    from fedrec.reporting.report import folders_of_runs, write_report

    papers = load_papers(parsed.papers)
    write_report(
        parsed.results,
        papers,
        artefacts_of(papers, parsed.artefacts),
        datasets=parsed.datasets,
        selections=parsed.statistics,
        unavailable=json.loads(parsed.unavailable),
        runs=folders_of_runs(parsed.runs, parsed.runs_from),
        audit=parsed.audit,
        out=parsed.out,
    )


def _papers(parsed: argparse.Namespace) -> None:
    """List the papers' tables and figures: what each needs, what is built, what the rest would cost."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.config.methods import load_methods
    from fedrec.config.papers import artefacts_of, load_papers
    from fedrec.plan.available import why_unavailable
    from fedrec.reporting.overview import listed, standing

    papers, catalogue = load_papers(parsed.papers), load_catalogue(parsed.catalogue)
    methods = load_methods(parsed.methods)
    chosen = artefacts_of(papers, parsed.names or papers)
    reasons = {
        name: why_unavailable(catalogue[name], parsed.raw, parsed.mirror)
        for name in sorted({name for one in chosen for name in one.datasets})
    }
    unavailable = {name: reason for name, reason in reasons.items() if reason is not None}
    found = [standing(one, methods, catalogue, parsed.results, parsed.seeds, unavailable) for one in chosen]
    print(listed({one.artefact.paper: papers[one.artefact.paper] for one in found}, found))


def _artefact(parsed: argparse.Namespace) -> None:
    """Build one table or figure of a paper from its finished runs."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.config.methods import load_methods
    from fedrec.config.papers import artefacts_of, load_papers
    from fedrec.reporting.artefacts import Workshop

    (artefact,) = artefacts_of(load_papers(parsed.papers), [parsed.name])
    Workshop(
        results=parsed.results,
        methods=load_methods(parsed.methods),
        catalogue=load_catalogue(parsed.catalogue),
        seeds=parsed.seeds,
        unavailable=json.loads(parsed.unavailable),
    ).build(artefact)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="fedrec",
        description="Federated recommendation papers, regenerated under an honest protocol. "
        "Snakemake calls these commands; each can be called by hand.",
    )
    parser.add_argument("--version", action="version", version=f"fedrec {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def add(name: str, command: Callable[[argparse.Namespace], None]) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=command.__doc__, description=command.__doc__)
        added.set_defaults(command=command)
        return added

    def add_catalogue(command: argparse.ArgumentParser) -> None:
        command.add_argument("--catalogue", type=Path, default=_CATALOGUE, help="default: %(default)s")

    def add_raw(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--raw", type=Path, default=_RAW, help="folder of raw files (default: %(default)s)"
        )

    def add_mirror(command: argparse.ArgumentParser) -> None:
        mirror = os.environ.get(MIRROR_VARIABLE)
        command.add_argument(
            "--mirror",
            type=Path,
            default=Path(mirror) if mirror else None,
            help=f"folder of local copies, tried first (default: ${MIRROR_VARIABLE})",
        )

    def add_protocols(command: argparse.ArgumentParser) -> None:
        command.add_argument("--protocols", type=Path, default=_PROTOCOLS, help="default: %(default)s")

    command = add("datasets", _datasets)
    add_catalogue(command)
    add_raw(command)
    add_mirror(command)

    command = add("methods", _methods)
    command.add_argument("--methods", type=Path, default=_METHODS, help="default: %(default)s")

    command = add("fetch", _fetch)
    command.add_argument("what", help="a dataset, or the path of one raw file in the catalogue")
    add_catalogue(command)
    add_raw(command)
    add_mirror(command)

    command = add("prepare", _prepare)
    command.add_argument("dataset")
    add_catalogue(command)
    add_raw(command)
    command.add_argument("--out", type=Path, required=True, help="folder for interactions, users and items")

    command = add("split", _split)
    command.add_argument("--data", type=Path, required=True, help="the prepared dataset's folder")
    command.add_argument("--protocol", required=True, help="clean, published-<paper>, or one of your own")
    add_protocols(command)

    command = add("describe", _describe)
    command.add_argument("--data", type=Path, required=True, help="the prepared dataset's folder")
    command.add_argument("--protocol", nargs="*", default=[], help="protocols whose splits to describe")
    command.add_argument("--out", type=Path, required=True, help="json file to write")

    command = add("table", _table)
    command.add_argument("statistics", nargs="*", type=Path, help="json files written by `fedrec describe`")
    add_catalogue(command)
    command.add_argument(
        "--unavailable", default="{}", help="json: the reason for each dataset that cannot be had"
    )
    command.add_argument("--out", type=Path, required=True, help="path of the table without its ending")

    command = add("train", _train)
    command.add_argument("--data", type=Path, required=True, help="the dataset's folder, with its splits")
    command.add_argument(
        "--method",
        required=True,
        help="a method of config/methods.yaml; with a plug-in and settings changed: fedmf+plgc[beta=0.3]",
    )
    command.add_argument(
        "--protocol",
        required=True,
        help="published (the paper's own), clean, a step between (only-pool, upto-lists), or one of your own",
    )
    command.add_argument("--paper", help="the paper whose settings to follow (default: the method's own)")
    command.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    command.add_argument("--out", type=Path, required=True, help="folder for the results")
    command.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="change a setting, for example d=32 or layers=32x16x8",
    )
    command.add_argument(
        "--engine", choices=["auto", "loop", "batched"], default="auto", help="default: %(default)s"
    )
    command.add_argument(
        "--device", choices=["auto", "cpu", "cuda"], default="auto", help="default: %(default)s"
    )
    command.add_argument("--methods", type=Path, default=_METHODS, help="default: %(default)s")
    command.add_argument(
        "--memory", type=float, help="GiB for clients in training (default: half of what is free)"
    )
    command.add_argument(
        "--record",
        action="append",
        default=[],
        metavar="KIND[=USER,USER]",
        help="record more than the final state: vectors, uploads or weights of some users (numbers in the "
        "dataset), or abundance",
    )
    command.add_argument("--checkpoint-seconds", type=float, default=30.0, help="default: %(default)s")

    command = add("compare", _compare)
    command.add_argument("runs", nargs="+", type=Path, help="run.json of each run")
    command.add_argument("--methods", type=Path, default=_METHODS, help="default: %(default)s")
    command.add_argument("--out", type=Path, required=True, help="path of the table without its ending")

    command = add("convergence", _convergence)
    command.add_argument("runs", nargs="+", type=Path, help="run.json of each run")
    command.add_argument("--methods", type=Path, default=_METHODS, help="default: %(default)s")
    command.add_argument("--out", type=Path, required=True, help="path of the figure without its ending")

    command = add("report", _report)
    command.add_argument("--results", type=Path, default=_RESULTS, help="default: %(default)s")
    command.add_argument("--papers", type=Path, default=_PAPERS, help="default: %(default)s")
    command.add_argument(
        "--artefacts", nargs="*", default=[], help="papers, tables (pfedclr_table1) and figures asked for"
    )
    command.add_argument("--datasets", nargs="*", default=[], help="datasets whose methods are compared")
    command.add_argument(
        "--statistics",
        nargs="*",
        default=[],
        metavar="SELECTION",
        help="tables of dataset statistics: dataset, selected, demo",
    )
    command.add_argument(
        "--audit",
        nargs="*",
        default=[],
        metavar="NAME",
        help="tables of the audit: verdicts, audit_protocols and so on, also of one paper: verdicts_pfedclr",
    )
    command.add_argument(
        "--unavailable", default="{}", help="json: the reason for each dataset or split that cannot be had"
    )
    command.add_argument(
        "--runs",
        nargs="*",
        default=[],
        help="folders or run.json of finished runs, or quoted patterns with *",
    )
    command.add_argument(
        "--runs-from",
        action="append",
        type=Path,
        default=[],
        metavar="FILE",
        help="a text file of more of them, one per line",
    )
    command.add_argument("--out", type=Path, required=True, help="html file to write")

    command = add("papers", _papers)
    command.add_argument("names", nargs="*", help="papers, tables or figures (default: all)")
    command.add_argument("--results", type=Path, default=_RESULTS, help="default: %(default)s")
    command.add_argument("--papers", type=Path, default=_PAPERS, help="default: %(default)s")
    command.add_argument("--methods", type=Path, default=_METHODS, help="default: %(default)s")
    add_catalogue(command)
    add_raw(command)
    add_mirror(command)
    command.add_argument("--seeds", type=int, nargs="+", default=[0], help="default: 0")

    command = add("artefact", _artefact)
    command.add_argument("name", help="for example pfedclr_table1; `fedrec papers` lists them")
    command.add_argument("--results", type=Path, default=_RESULTS, help="default: %(default)s")
    command.add_argument("--papers", type=Path, default=_PAPERS, help="default: %(default)s")
    command.add_argument("--methods", type=Path, default=_METHODS, help="default: %(default)s")
    add_catalogue(command)
    command.add_argument("--seeds", type=int, nargs="+", default=[0], help="default: 0")
    command.add_argument(
        "--unavailable", default="{}", help="json: the reason for each dataset that cannot be had"
    )

    add_audit(commands)

    return parser
