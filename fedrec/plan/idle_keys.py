"""Keys set on the command line that change nothing of the targets are refused: a user expects an effect."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from fedrec.config.configuration import COMMAND_LINE
from fedrec.errors import ConfigurationError
from fedrec.plan.project import Project
from fedrec.plan.target_names import runs_for_targets

_OF_COMPARISONS = "It affects comparisons of methods, `all`, `quick` and `audit`"
_USES: Mapping[str, str] = {
    "rounds": "It shortens comparisons and the audit (`demo_rounds` shortens the demonstration). Tables and "
    "figures of papers train with the papers' own settings",
    "quick_rounds": "It affects `quick` and its tables",
    "demo_rounds": "It affects `demo` and its tables",
    "methods": f"{_OF_COMPARISONS}. Tables of papers have their own methods",
    "paper": f"{_OF_COMPARISONS}. Tables of papers use that paper's settings",
    "protocols": _OF_COMPARISONS,
    "datasets": "It affects `all`, `quick` and `audit`. Other targets have a dataset in their name; tables "
    "of papers use `paper_datasets`",
    "artefacts": "It affects `all` and the report",
    "audit": "It affects `all`, `quick`, `demo` and `audit`",
}
"""What each key is for, of those that not every target reads."""


def refuse_idle_keys(
    project: Project,
    changes: Mapping[str, Any],
    targets: Sequence[str],
    load: Callable[[Mapping[str, Any]], Project],
) -> None:
    """Raise `ConfigurationError` for a key among `changes` that changes no plan of a target.

    `load` gives the project of other changes. A key with the value that it has anyway is no mistake; without
    targets there is none.
    """
    for key in [key for key in _USES if key in changes and targets]:
        without = load({name: value for name, value in changes.items() if name != key})
        if without.configuration[key] == project.configuration[key]:
            continue
        if _plans(without, targets) == _plans(project, targets):
            raise ConfigurationError(
                f"{COMMAND_LINE}: {key} has no effect on {', '.join(targets)}. {_USES[key]}. Leave it out."
            )


def _plans(project: Project, targets: Sequence[str]) -> list[str]:
    """Everything that decides targets: their plans, and of runs asked for by file their folders."""
    names = (name for name in targets if name in project.groups or name in project.targets.names)
    plans = [target.as_json() for name in names for target in project.group(name)]
    return [*plans, *(run.folder for run in runs_for_targets(project, targets))]
