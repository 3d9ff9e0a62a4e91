"""Detect configuration keys without an effect on the requested targets: the user expects an effect.

On the command line such a key is an error. In a file given by `--configfile` it is a warning, because one
file may serve several targets.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from fedrec.config.configuration import COMMAND_LINE, Configuration
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
"""The effect of each key that only some targets read, as text for messages."""

_SHIPPED = ("papers.yaml", "audit.yaml", "reference.yaml")
"""Files of the project that are read after `config.yaml` and override its keys."""


def refuse_unused_keys(
    project: Project,
    changes: Mapping[str, Any],
    targets: Sequence[str],
    load: Callable[[Mapping[str, Any]], Project],
) -> None:
    """Raise `ConfigurationError` for a key of `changes` that does not change the plan of any target.

    `load` returns the project for given changes. A key that repeats the configured value is no error.
    """
    for key in [key for key in _USES if key in changes and targets]:
        without = load({name: value for name, value in changes.items() if name != key})
        if without.configuration[key] == project.configuration[key]:
            continue
        if _plans(without, targets) == _plans(project, targets):
            raise ConfigurationError(
                f"{COMMAND_LINE}: {key} has no effect on {', '.join(targets)}. {_USES[key]}. Leave it out."
            )


def unused_in_files(
    project: Project,
    configuration: Configuration,
    changes: Mapping[str, Any],
    targets: Sequence[str],
    load: Callable[[Mapping[str, Any]], Project],
) -> list[str]:
    """Warnings about keys of further files that override the first one and change no plan of a target.

    Files of the project itself serve many targets and cause no warning. `load` returns the project for given
    changes.
    """
    first = configuration.layers[0].content
    laid = {
        key: layer
        for layer in configuration.layers[1:]
        if layer.origin != COMMAND_LINE and Path(layer.origin).name not in _SHIPPED
        for key in _USES
        if key in layer.content and key in first and key not in changes and layer.content[key] != first[key]
    }
    if not laid or not targets:
        return []
    plans = _plans(project, targets)

    def is_idle(*keys: str) -> bool:
        return _plans(load({**changes, **{key: first[key] for key in keys}}), targets) == plans

    idle = list(laid) if is_idle(*laid) else [key for key in laid if is_idle(key)]
    return [
        f"{laid[key].location((key,))}: changes nothing of {', '.join(targets)}. {_USES[key]}. "
        "Leave it out, unless the file is for other targets, too."
        for key in idle
    ]


def _plans(project: Project, targets: Sequence[str]) -> list[str]:
    """Everything that decides targets: their plans, and the folders of runs that are requested by file."""
    names = (name for name in targets if name in project.groups or name in project.targets.names)
    plans = [target.as_json() for name in names for target in project.group(name)]
    return [*plans, *(run.folder for run in runs_for_targets(project, targets))]
