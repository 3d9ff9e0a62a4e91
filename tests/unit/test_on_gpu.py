"""The comparison on a GPU, as far as a machine without one can tell."""

import subprocess
import sys

from tests.made_data import ROOT

ABSENT = (
    "hypothesis", "jinja2", "jsonschema", "matplotlib", "polars", "pooch", "requests", "seaborn", "snakemake",
)  # fmt: skip
"""Packages that a machine with a GPU need not have: importing one of them fails."""
BARE = f"import sys; sys.modules.update(dict.fromkeys({ABSENT}))"
ONE_CASE = """
import torch
from tests import on_gpu

(case,) = (case for case in on_gpu.LEADING if case.name == "fedmf")
assert on_gpu.looped(case, torch.float64)
"""


def test_it_needs_no_more_than_training_and_pytest():
    result = subprocess.run(
        [sys.executable, "-c", BARE + ONE_CASE], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
