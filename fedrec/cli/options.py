"""Functions that add a command, and options that several commands share."""

import argparse
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from fedrec.config.default_paths import (
    default_catalogue,
    default_found_file,
    default_method_file,
    path_or_default,
)
from fedrec.config.reference import STORED_REFERENCE

if TYPE_CHECKING:
    from fedrec.config.methods import Methods
    from fedrec.plan.project import Project

    Commands: TypeAlias = argparse._SubParsersAction[argparse.ArgumentParser]

COMMAND = "COMMAND"
"""The placeholder for a command in usage lines."""
MIRROR_VARIABLE = "FEDREC_MIRROR"
_CONFIGURATION = Path("config/config.yaml")
_LIST_ENDING = ".jsonl"


def add_command(
    commands: "Commands", name: str, command: Callable[[argparse.Namespace], None], example: str
) -> argparse.ArgumentParser:
    """Add the parser of the command `name`, with the docstring of `command` as its description."""
    epilog = f"example: fedrec {example}"
    parser = commands.add_parser(name, help=command.__doc__, description=command.__doc__, epilog=epilog)
    parser.set_defaults(command=command, usage=parser.format_usage)
    return parser


def add_catalogue(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the catalogue of datasets."""
    parser.add_argument(
        "--catalogue",
        type=Path,
        default=default_catalogue(),
        metavar="FILE",
        help="the catalogue of datasets (default: %(default)s)",
    )


def add_raw(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of raw files."""
    parser.add_argument(
        "--raw",
        type=Path,
        default=Path("results/raw"),
        metavar="FOLDER",
        help="the folder of raw files (default: %(default)s)",
    )


def add_mirror(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of local copies."""
    mirror = os.environ.get(MIRROR_VARIABLE)
    parser.add_argument(
        "--mirror",
        type=Path,
        default=Path(mirror) if mirror else None,
        metavar="FOLDER",
        help=f"a folder with copies of raw files, which fedrec tries first (default: ${MIRROR_VARIABLE})",
    )


def add_method_file(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file of methods' settings."""
    parser.add_argument(
        "--methods",
        type=Path,
        default=default_method_file(),
        metavar="FILE",
        help="the settings of all methods (default: %(default)s)",
    )


def add_methods(parser: argparse.ArgumentParser) -> None:
    """Add the options that name the file of methods' settings and the file of searched settings."""
    add_method_file(parser)
    parser.add_argument(
        "--found",
        type=Path,
        default=default_found_file(),
        metavar="FILE",
        help="settings that searches found (default: found.yaml beside the --methods file, if it exists)",
    )


def methods_of(parsed: argparse.Namespace) -> "Methods":
    """The methods that the options of `add_methods` name."""
    from fedrec.config.methods import load_methods

    return load_methods(parsed.methods, parsed.found)


def add_no_model(parser: "argparse.ArgumentParser | argparse._MutuallyExclusiveGroup") -> None:
    """Add the option that makes training write no models."""
    parser.add_argument(
        "--no-model",
        action="store_true",
        help="do not write the model, which is the largest file of a run. Metrics and `fedrec reference "
        "add` do not need it; `fedrec run` trains a run again if a target needs its model",
    )


def add_where(parser: argparse.ArgumentParser) -> None:
    """Add the options for the device and the engine of training."""
    parser.add_argument(
        "--engine",
        default="auto",
        help="auto, fused (compiled kernels), batched (torch) or loop (the plain loop, our reference); "
        "default: %(default)s",
    )
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda (default: %(default)s)")


def check_out(path: Path | None) -> None:
    """Raise `ConfigurationError` if `path` cannot be a file, before any work."""
    from fedrec.errors import ConfigurationError

    if path is not None and (path.is_dir() or not path.absolute().parent.is_dir()):
        raise ConfigurationError(
            f"--out {path}: cannot write a file there. Give the path of a file in an existing folder."
        )


def add_strict(parser: argparse.ArgumentParser) -> None:
    """Add the option that makes training fail if the engine does not give the plain loop's numbers."""
    parser.add_argument(
        "--strict",
        action="store_true",
        help="fail if the engine's self-check on a few clients does not give the numbers of the plain loop "
        "(default: warn, and train the run on a slower engine)",
    )


def add_store(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the folder of packed runs."""
    parser.add_argument(
        "--store",
        type=Path,
        default=STORED_REFERENCE,
        metavar="FOLDER",
        help="the folder of packed runs (default: %(default)s)",
    )


def add_project(parser: argparse.ArgumentParser) -> None:
    """Add the options that name a project's configuration."""
    parser.add_argument(
        "--project",
        type=Path,
        default=_CONFIGURATION,
        metavar="FILE",
        help="the configuration file, or plan/project.json below the results, which Snakemake writes "
        "(default: %(default)s)",
    )
    parser.add_argument(
        "--configfile",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="a file with keys that override the configuration, as in Snakemake; may be repeated",
    )
    add_mirror(parser)


def project_of(parsed: argparse.Namespace) -> "Project":
    """The project that the options of `add_project` name."""
    from fedrec.config.configuration import read_configuration
    from fedrec.plan.availability import check_mirror
    from fedrec.plan.project import Project

    check_mirror(parsed.mirror)
    return Project.load(read_configuration([parsed.project, *parsed.configfile]), mirror=parsed.mirror)


def is_list(targets: Sequence[str]) -> bool:
    """Whether the target is a run list, by its extension; `ConfigurationError` for a list among targets."""
    from fedrec.errors import ConfigurationError

    lists = [name for name in targets if name.endswith(_LIST_ENDING)]
    if lists and len(targets) > 1:
        raise ConfigurationError(
            f"{lists[0]}: is a run list. Give one run list and nothing else, or targets."
        )
    return bool(lists)


def check_paper(parsed: argparse.Namespace) -> None:
    """Raise `ConfigurationError` unless a setting, a protocol or a file of papers names the paper.

    `own` means no paper. Schemas are not checked, since machines that only train may not have jsonschema.
    """
    from fedrec.config.default_files import file_or_default
    from fedrec.config.protocol import OWN, paper_of
    from fedrec.config.yaml_text import values_of
    from fedrec.errors import ConfigurationError, did_you_mean
    from fedrec.plan.runs import papers_in

    paper, folder = parsed.paper, parsed.methods.parent
    protocols = file_or_default(path_or_default("FEDREC_PROTOCOLS", str(folder / "protocols.yaml")))
    names = values_of(protocols.read_text(encoding="utf-8")) if protocols.is_file() else {}
    declared = (path.stem for path in sorted(file_or_default(folder / "papers").glob("*.yaml")))
    of_protocols = (whose for name in names if (whose := paper_of(name)))
    known = list(dict.fromkeys((*papers_in(methods_of(parsed)), *declared, *of_protocols)))
    if paper not in (*known, OWN):
        raise ConfigurationError(
            f"--paper: unknown paper '{paper}'.{did_you_mean(paper, known)} Known papers: {', '.join(known)}."
        )
