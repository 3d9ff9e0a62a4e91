"""Commands that look and change nothing: datasets, methods, papers, audit of one run."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedrec.cli.options import (
    add_catalogue,
    add_command,
    add_methods,
    add_mirror,
    add_project,
    add_raw,
    project_of,
)
from fedrec.config.protocol import full_name, short_name

if TYPE_CHECKING:
    from fedrec.cli.options import Commands
    from fedrec.runs.record import RunRecord


def add_commands(commands: "Commands") -> None:
    """Add the commands of this file."""
    parser = add_command(commands, "datasets", _datasets)
    add_catalogue(parser)
    add_raw(parser)
    add_mirror(parser)

    parser = add_command(commands, "methods", _methods)
    add_methods(parser)

    parser = add_command(commands, "papers", _papers)
    parser.add_argument("names", nargs="*", help="papers, tables or figures (default: all)")
    add_project(parser)

    parser = add_command(commands, "audit", _audit)
    parser.add_argument("--run", type=Path, required=True, help="the folder of a finished run")
    parser.add_argument(
        "--exposed", type=Path, help="the same run under only-pool (default: beside it, if there)"
    )
    parser.add_argument(
        "--data", type=Path, help="the folder of its dataset's splits (default: of its results)"
    )
    parser.add_argument("--out", type=Path, help="json file to write (default: print)")


def _datasets(parsed: argparse.Namespace) -> None:
    """List the catalogue and what is available."""
    from fedrec.config.catalogue import load_catalogue
    from fedrec.plan.available import is_local

    for name, dataset in load_catalogue(parsed.catalogue).items():
        missing = [file for file in dataset.files() if not is_local(file, parsed.raw, parsed.mirror)]
        sought = all(source.kind == "mirror" for file in missing for source in file.sources)
        state = "at hand" if not missing else "not found" if sought else "to be fetched"
        licence = f" Licence: {dataset.licence}." if dataset.licence else ""
        print(f"{name:<16} {state:<14} {dataset.title}.{licence}")


def _methods(parsed: argparse.Namespace) -> None:
    """List every method and plug-in: its paper, its kind, where its parameters live, what it uploads."""
    from fedrec.config.methods import load_methods
    from fedrec.runs.cards import cards, listed

    print(listed(cards(load_methods(parsed.methods))))


def _papers(parsed: argparse.Namespace) -> None:
    """List the papers' tables and figures: what each needs, what is built, what the rest would cost."""
    from fedrec.config.papers import artefacts_of
    from fedrec.plan.standing import listing

    project = project_of(parsed)
    print(listing(project, artefacts_of(project.papers, parsed.names or project.papers)))


def _audit(parsed: argparse.Namespace) -> None:
    """Audit a finished run: its draws, hits that vanish when items are exposed, what its uploads reveal."""
    from fedrec.audit.exposure import exposure
    from fedrec.audit.uploads import attack_uploads
    from fedrec.federation.observe.recorder import extras
    from fedrec.files.atomic import write_text
    from fedrec.runs.record import RunRecord

    run = RunRecord(parsed.run, parsed.data)
    summary = run.summary
    findings = {
        **{key: summary[key] for key in ("dataset", "method", "paper", "seed", "split", "code")},
        "protocol": summary["protocol"]["name"],
        "rounds": summary["settings"]["rounds"],
        "exposure": exposure(run),
        "hits": _hits(run, parsed.exposed),
    }
    findings["uploads"] = (
        attack_uploads(run.tensors, run.clients)
        if "users/traffic" in extras(run.tensors)
        else "to attack what clients send, train with --record traffic"
    )
    text = json.dumps(findings, indent=2) + "\n"
    if parsed.out is None:
        print(text, end="")
    else:
        write_text(parsed.out, text)


def _hits(run: "RunRecord", exposed: Path | None) -> "dict[str, Any] | str":
    """Which hits vanish where held-out items may be drawn, or why that is not known."""
    from fedrec.audit.exposure import vanished
    from fedrec.runs.record import RunRecord

    if run.summary["protocol"]["negative_pool"] == "exclude_train":
        return "held-out items may be drawn under this protocol anyway"
    exposed = exposed or _beside(run)
    if exposed is None:
        return "to see which vanish where held-out items may be drawn, train the same under only-pool"
    return vanished(run, RunRecord(exposed))


def _beside(run: "RunRecord") -> Path | None:
    """The same run under only-pool, where the workflow would have put it; it differs from published alone."""
    folder, protocol = run.folder.absolute(), run.summary["protocol"]["name"]
    exposed = full_name("only-pool", run.summary["paper"])
    beside = folder.parents[2] / exposed / folder.parent.name / folder.name
    published = short_name(protocol) == "published"
    return beside if published and (beside / "run.json").is_file() else None
