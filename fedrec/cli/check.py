"""`fedrec check`: read and check every configuration file, also that of the reference runs."""

import argparse
from typing import TYPE_CHECKING

from fedrec.cli.options import add_command, add_project, project_of
from fedrec.config.reference import REFERENCE_CONFIGURATION

if TYPE_CHECKING:
    from fedrec.cli.options import Commands


def add_commands(commands: "Commands") -> None:
    """Add the command of this file."""
    parser = add_command(commands, "check", _check, "check pfedclr_table1")
    parser.add_argument(
        "targets",
        nargs="*",
        metavar="TARGET",
        help="names of tables, figures, pages or files to check as well",
    )
    add_project(parser)


def _check(parsed: argparse.Namespace) -> None:
    """Check every configuration file and the names of targets; build nothing. Errors name file and line."""
    from fedrec.plan.target_names import validate_targets
    from fedrec.plan.workspace import CONFIGURATION_FILES

    project = project_of(parsed)
    validate_targets(project, parsed.targets)
    if REFERENCE_CONFIGURATION.is_file():
        parsed.configfile = [*parsed.configfile, REFERENCE_CONFIGURATION]
        project_of(parsed)
    counts = {
        "datasets": len(project.catalogue),
        "methods and plug-ins": len(project.methods),
        "papers": len(project.papers),
        "tables, figures and pages": len(project.targets.names) - len(project.tuning.searches),
        "searches": len(project.tuning.searches),
    }
    print(
        "The configuration is valid: " + ", ".join(f"{count} {what}" for what, count in counts.items()) + "."
    )
    written = (str(parsed.project), *(project.configuration[key] for key in CONFIGURATION_FILES))
    defaults = [path for path in written if not (project.root / path).exists()]
    if defaults:
        print(f"Not in this folder, so fedrec uses its own: {', '.join(defaults)}.")
