"""Whether the fused engine compiled the fits of a test: where it did not, it trained by the batched engine."""

import os
from collections.abc import Mapping

import pytest

NO_COMPILER = "FEDREC_NO_COMPILER"
"""The environment variable that, set to 1, excuses a machine from having a C compiler."""
_NOISE = "a step adds noise to the gradient of every row, so it changes every row"
_PAIRS = "its loss compares all samples of a mini-batch with each other"
_ROWS_TWICE = "its loss computes a number for every row of a table, and needs it in a second loop"
NOT_COMPILED: Mapping[str, str] = {
    "fedmf[dp_noise=1]": _NOISE,
    "fedncf[dp_noise=1]": _NOISE,
    "fedrap[dp_noise=1]": _NOISE,
    "pfedrec[dp_noise=1]": _NOISE,
    "fedmf+plgc[redundancy=au]": _PAIRS,
    "fedmf+plgc[redundancy=duorec]": _PAIRS,
    "gpfedrec+em[merging=batch]": _ROWS_TWICE,
}
"""The compositions of the contract with a fit that the fused engine cannot compile, and its reason without its line."""


def skip_without_compiler() -> None:
    """Skip a test of compiled kernels on a machine that is excused from having a compiler."""
    if os.environ.get(NO_COMPILER) == "1":
        pytest.skip(f"{NO_COMPILER}=1: this machine need not have a C compiler")


def wrongly_trained(name: str, training: Mapping[str, str]) -> list[str]:
    """What the `training` notes of an engine say against a composition called `name`; nothing if all is right.

    Every fit must be compiled. A listed composition must have a fit that is refused for the listed reason.
    """
    listed = NOT_COMPILED.get(name)
    without_lines = {label: outcome.partition(" (")[0] for label, outcome in training.items()}
    outcomes = set(without_lines.values())
    found = [
        f"the training of {label} is not compiled: {outcome}"
        for label, outcome in training.items()
        if without_lines[label] not in ("compiled", listed)
    ]
    if not outcomes:
        found.append("the fused engine trained nothing")
    if listed is not None and listed not in outcomes:
        found.append(f"{name} is listed in NOT_COMPILED, but no fit was refused because {listed}")
    return found


def assert_compiled(name: str, training: Mapping[str, str]) -> None:
    """Fail unless the fused engine compiled every fit, or refused one for the reason that is listed."""
    assert not wrongly_trained(name, training), (
        f"{name}: {'; '.join(wrongly_trained(name, training))}. On a machine that need not have a C compiler "
        f"set {NO_COMPILER}=1."
    )
