"""`fedrec audit`: one run by itself, or the tables of many."""

import argparse
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.config.protocol import full_name, short_name
from fedrec.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from fedrec.plan.steps import ProtocolSteps
    from fedrec.runs.finished import Finished

Command = Callable[[argparse.Namespace], None]
_FOLDERS = {
    "results": "results",
    "methods": "config/methods.yaml",
    "protocols": "config/protocols.yaml",
    "catalogue": "config/datasets.yaml",
    "papers": "config/papers",
    "claims": "config/claims.yaml",
}


def add_audit(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command and what it can audit."""
    audit = commands.add_parser("audit", help=_run.__doc__, description=_run.__doc__)
    audit.set_defaults(command=_run)
    audit.add_argument("--run", type=Path, help="the folder of a finished run")
    audit.add_argument(
        "--exposed", type=Path, help="the same run under only-pool (default: beside it, if there)"
    )
    audit.add_argument(
        "--data", type=Path, help="the folder of its dataset's splits (default: of its results)"
    )
    audit.add_argument("--out", type=Path, help="json file to write (default: print)")
    kinds = audit.add_subparsers(metavar="TABLE", help="tables of many runs:")

    def add(name: str, command: Command, *files: str) -> argparse.ArgumentParser:
        added = kinds.add_parser(name, help=command.__doc__, description=command.__doc__)
        added.set_defaults(command=command)
        for file in files:
            added.add_argument(
                f"--{file}", type=Path, default=Path(_FOLDERS[file]), help="default: %(default)s"
            )
        return added

    command = add("protocols", _protocols, "results", "methods", "protocols", "catalogue")
    command.add_argument(
        "--datasets",
        nargs="+",
        required=True,
        metavar="DATASET=PAPER[=ROUNDS]",
        help="the paper whose settings are followed, and at most so many rounds (default: the paper's own)",
    )
    command.add_argument("--names", nargs="+", required=True, metavar="METHOD", help="the methods to audit")
    command.add_argument(
        "--switches", nargs="+", required=True, help="of pool, repeats, lists, round, ties, order"
    )
    command.add_argument("--seeds", type=int, nargs="+", default=[0], help="default: 0")
    command.add_argument("--out", type=Path, required=True, help="path of the table without its ending")
    command.add_argument("--figure", type=Path, required=True, help="path of the figure without its ending")

    for name, run in (("exposure", _exposure), ("significance", _significance), ("uploads", _uploads)):
        command = add(name, run, "methods")
        command.add_argument("runs", type=Path, nargs="*", help="run.json of finished runs")
        command.add_argument(
            "--runs-from", type=Path, metavar="FILE", help="a text file of more, one per line"
        )
        command.add_argument("--out", type=Path, required=True, help="path of the table without its ending")

    command = add("granularity", _granularity, "catalogue", "results")
    command.add_argument(
        "--statistics",
        type=Path,
        nargs="*",
        help="files of `fedrec describe` that tell numbers of users (default: those among the results)",
    )
    command.add_argument("--out", type=Path, help="path of the table without its ending (default: print)")

    command = add("verdicts", _verdicts, "results", "papers", "methods", "claims")
    command.add_argument(
        "--runs-from", type=Path, metavar="FILE", help="a text file of the run.json to judge by, one per line"
    )
    command.add_argument("--of", nargs="*", default=[], metavar="PAPER", help="papers (default: all)")
    command.add_argument("--rounds", type=int, help="at most so many (default: each paper's own)")
    command.add_argument("--seeds", type=int, nargs="+", default=[0], help="default: 0")
    command.add_argument(
        "--unavailable", default="{}", help="json: the reason for each dataset that cannot be had"
    )
    command.add_argument("--out", type=Path, required=True, help="path of the table without its ending")


def _run(parsed: argparse.Namespace) -> None:
    """Audit a finished run: its draws, hits that vanish when items are exposed, what its uploads reveal."""
    from fedrec.audit.exposure import exposure
    from fedrec.audit.uploads import attack_uploads
    from fedrec.federation.observe.recorder import extras
    from fedrec.files.atomic import write_text
    from fedrec.runs.finished import Finished

    if parsed.run is None:
        raise ConfigurationError(
            "audit what? Name a finished run (fedrec audit --run DIR) or a table (fedrec audit --help)."
        )
    run = Finished(parsed.run, parsed.data)
    told = run.summary
    found = {
        **{key: told[key] for key in ("dataset", "method", "paper", "seed", "split", "code")},
        "protocol": told["protocol"]["name"],
        "rounds": told["settings"]["rounds"],
        "exposure": exposure(run),
        "hits": _hits(run, parsed.exposed),
    }
    found["uploads"] = (
        attack_uploads(run.tensors, run.clients)
        if "users/traffic" in extras(run.tensors)
        else "to attack what clients send, train with --record traffic"
    )
    text = json.dumps(found, indent=2) + "\n"
    if parsed.out is None:
        print(text, end="")
    else:
        write_text(parsed.out, text)


def _hits(run: "Finished", exposed: Path | None) -> "dict[str, Any] | str":
    """Which hits vanish where held-out items may be drawn, or why that is not known."""
    from fedrec.audit.exposure import vanished
    from fedrec.runs.finished import Finished

    if run.summary["protocol"]["negative_pool"] == "exclude_train":
        return "held-out items may be drawn under this protocol anyway"
    exposed = exposed or _beside(run)
    if exposed is None:
        return "to see which vanish where held-out items may be drawn, train the same under only-pool"
    return vanished(run, Finished(exposed))


def _beside(run: "Finished") -> Path | None:
    """The same run under only-pool, where the workflow would have put it; it differs from published alone."""
    folder, protocol = run.folder.absolute(), run.summary["protocol"]["name"]
    exposed = full_name("only-pool", run.summary["paper"])
    beside = folder.parents[2] / exposed / folder.parent.name / folder.name
    published = short_name(protocol) == "published"
    return beside if published and (beside / "run.json").is_file() else None


def _protocols(parsed: argparse.Namespace) -> None:
    """Write the table of methods at each step from published to clean, and the figure of their ranks."""
    from fedrec.config.methods import load_methods
    from fedrec.config.protocol_file import load_protocols
    from fedrec.reporting.ladders import write_ladders

    write_ladders(
        parsed.results,
        _ladders(parsed),
        load_methods(parsed.methods),
        load_protocols(parsed.protocols),
        parsed.seeds,
        parsed.out,
        parsed.figure,
    )


def _ladders(parsed: argparse.Namespace) -> "list[ProtocolSteps]":
    from fedrec.config.catalogue import load_catalogue
    from fedrec.config.methods import load_methods
    from fedrec.plan.steps import protocol_steps

    catalogue, methods = load_catalogue(parsed.catalogue), load_methods(parsed.methods)
    return [
        protocol_steps(
            methods,
            parsed.names,
            dataset=dataset,
            paper=paper,
            rounds=rounds,
            switches=parsed.switches,
            distinct_pairs=catalogue[dataset].distinct_pairs,
        )
        for dataset, paper, rounds in map(_followed, parsed.datasets)
    ]


def _followed(text: str) -> tuple[str, str, int | None]:
    """A dataset, the paper whose settings are followed on it, and at most how many rounds."""
    found = re.fullmatch(r"([^=]+)=([^=]+)(?:=([1-9][0-9]*))?", text)
    if found is None:
        raise ConfigurationError(
            f"--datasets {text}: whose settings are followed, for how long? Write DATASET=PAPER or "
            "DATASET=PAPER=ROUNDS, for example ml-100k=pfedclr=15."
        )
    dataset, paper, rounds = found.groups()
    return dataset, paper, None if rounds is None else int(rounds)


def _exposure(parsed: argparse.Namespace) -> None:
    """Write the table of how held-out items and candidates were drawn, and whether scores follow draws."""
    from fedrec.config.methods import load_methods
    from fedrec.reporting.exposures import write_exposures

    write_exposures(_folders(parsed), load_methods(parsed.methods), parsed.out)


def _significance(parsed: argparse.Namespace) -> None:
    """Write the table of differences between methods, paired by user, with tests and intervals."""
    from fedrec.config.methods import load_methods
    from fedrec.reporting.significances import write_significances

    write_significances(_folders(parsed), load_methods(parsed.methods), parsed.out)


def _uploads(parsed: argparse.Namespace) -> None:
    """Write the table of what attackers infer from uploads, beside what noise costs."""
    from fedrec.config.methods import load_methods
    from fedrec.reporting.upload_tables import write_uploads

    write_uploads(_folders(parsed), load_methods(parsed.methods), parsed.out)


def _granularity(parsed: argparse.Namespace) -> None:
    """Check whether printed hit ratios are single runs or the averages they are said to be."""
    from fedrec.audit.granularity import granularity_rows
    from fedrec.config.catalogue import load_catalogue
    from fedrec.reporting.audit_granularity import granularity_table, users_of
    from fedrec.reporting.tables import write_forms

    described = {}
    among_results = sorted((parsed.results / "data").glob("*/statistics.json"))
    for path in among_results if parsed.statistics is None else parsed.statistics:
        statistics = json.loads(_text(path))
        described[statistics["dataset"]] = statistics
    rows = granularity_rows(users_of(load_catalogue(parsed.catalogue), described))
    table = granularity_table(rows)
    if parsed.out is None:
        print(table.markdown())
    else:
        write_forms(parsed.out, rows, [table])


def _verdicts(parsed: argparse.Namespace) -> None:
    """Write which claims of the papers hold under the clean protocol."""
    from fedrec.config.claims import load_claims
    from fedrec.config.methods import load_methods
    from fedrec.config.papers import load_papers
    from fedrec.reporting.verdicts import write_verdicts

    papers = load_papers(parsed.papers)
    for paper in parsed.of:
        if paper not in papers:
            raise ConfigurationError(
                f"--of: unknown paper '{paper}'.{did_you_mean(paper, papers)} Known: {', '.join(papers)}."
            )
    claims = load_claims(parsed.claims, papers)
    write_verdicts(
        parsed.results,
        [claim for claim in claims if not parsed.of or claim.paper in parsed.of],
        load_methods(parsed.methods),
        parsed.seeds,
        parsed.rounds,
        json.loads(parsed.unavailable),
        parsed.out,
        runs=None if parsed.runs_from is None else _listed(parsed.runs_from),
    )


def _folders(parsed: argparse.Namespace) -> list[Path]:
    """The folders of the runs that were named, in the command or in a file."""
    named = list(parsed.runs)
    if parsed.runs_from is not None:
        named += _listed(parsed.runs_from)
    if not named:
        raise ConfigurationError("no run was given. Name the run.json of finished runs.")
    print(f"{len(named)} runs", file=sys.stderr)
    return [path.parent for path in named]


def _listed(file: Path) -> list[Path]:
    return [Path(line) for line in _text(file).splitlines() if line]


def _text(file: Path) -> str:
    """What a file named in the command holds."""
    try:
        return file.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ConfigurationError(f"{file}: there is no such file. Check the path.") from None
