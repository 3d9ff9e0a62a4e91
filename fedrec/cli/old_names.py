"""Old names of commands and options: each works for one version, with a warning."""

import sys
from collections.abc import Mapping, Sequence

REMOVED_IN = "0.2"
"""The version that no longer knows the old names: then this module goes."""
_COMMANDS: Mapping[tuple[str, ...], tuple[str, ...]] = {
    ("papers",): ("artefacts",),
    ("work",): ("train-list",),
    ("reference", "keep"): ("reference", "freeze"),
}
_OPTIONS: Mapping[str, Mapping[str, str]] = {
    "adopt": {"--finished": "--skip-unfinished"},
    "plan": {"--finished": "--include-finished"},
    "reference": {"--gaps": "--missing-only"},
    "train": {
        "--also": "--also-protocol",
        "--diverged": "--on-divergence",
        "--without-model": "--no-model",
    },
    "train-list": {"--without-model": "--no-model"},
    "tune": {"--leaking": "--allow-leak"},
}
"""By command, in its new name."""


def with_new_names(words: Sequence[str]) -> list[str]:
    """The words of a command with every old name replaced, each with a warning on standard error."""
    replaced = [*words]
    for old, new in _COMMANDS.items():
        if tuple(replaced[: len(old)]) == old:
            replaced[: len(old)] = new
            _warn(f"command {' '.join(old)}", " ".join(new))
    options = _OPTIONS.get(replaced[0], {}) if replaced else {}
    for index, word in enumerate(replaced):
        name, *value = word.split("=", 1)
        if name in options:
            replaced[index] = "=".join((options[name], *value))
            _warn(name, options[name])
    return replaced


def _warn(old: str, new: str) -> None:
    print(f"fedrec: {old} is now {new}; the old name works until {REMOVED_IN}.", file=sys.stderr)
