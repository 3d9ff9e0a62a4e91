"""The words of a call of Snakemake, read by Snakemake's own parser."""

import argparse
import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any

from fedrec.errors import ConfigurationError
from fedrec.plan.workflow_start import DEFAULT_TARGET


def read_words(words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """What Snakemake takes words for, profiles included, and the values of its `--config`."""
    from snakemake.cli import parse_args, parse_config

    # Snakemake says there which profile it reads, and will say it again.
    said = io.StringIO()
    try:
        with redirect_stderr(said):
            _, asked = parse_args([*words])
            return asked, parse_config(asked.config)
    except SystemExit as ended:
        if not ended.code:
            raise
        message = said.getvalue().strip().splitlines()[-1].rpartition("error: ")[2]
    except Exception as error:
        # Snakemake raises errors of many types for a wrong value of an option, and catches them so.
        message = str(error)
    raise ConfigurationError(
        f"Snakemake cannot parse these arguments: {message.rstrip('.')}. Write options first, then -- and "
        "the targets: fedrec run --cores 2 --config rounds=20 -- all. `snakemake --help` lists its options."
    )


def targets_of(words: Sequence[str]) -> list[str]:
    """The targets of a call; none of a job on a cluster, which the call that sent it was asked for."""
    asked, _ = read_words(words)
    return [] if asked.target_jobs else [*asked.targets] or [DEFAULT_TARGET]
