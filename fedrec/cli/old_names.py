"""Old names of commands and options: each works for one version, with a warning."""

import sys
from collections.abc import Mapping, Sequence

REMOVED_IN = "0.2"
"""The version without old names: remove this module then."""
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
"""Old and new names of options, by the new name of the command."""


def with_new_names(words: Sequence[str]) -> list[str]:
    """Replace old names in the words of a command, with a warning on standard error for each."""
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
