"""Parse the arguments of Snakemake by Snakemake's own parser."""

import argparse
import io
from collections.abc import Sequence
from contextlib import redirect_stderr
from typing import Any

from fedrec.errors import ConfigurationError
from fedrec.plan.workflow_start import DEFAULT_TARGET


def read_words(words: Sequence[str]) -> tuple[argparse.Namespace, dict[str, Any]]:
    """Parse words as Snakemake does, with profiles; also return the values of `--config`."""
    from snakemake.cli import parse_args, parse_config

    # Hide the name of the profile on standard error: Snakemake itself will print it.
    output = io.StringIO()
    try:
        with redirect_stderr(output):
            _, options = parse_args([*words])
            return options, parse_config(options.config)
    except SystemExit as ended:
        if not ended.code:
            raise
        message = output.getvalue().strip().splitlines()[-1].rpartition("error: ")[2]
    except Exception as error:
        # Snakemake raises errors of many types for a wrong value, and its own code catches all of them.
        message = str(error)
    raise ConfigurationError(
        f"Snakemake cannot parse these arguments: {message.rstrip('.')}. Write options first, then -- and "
        "the targets: fedrec run --cores 2 --config rounds=20 -- all. `snakemake --help` lists its options."
    )


def targets_of(words: Sequence[str]) -> list[str]:
    """The targets of a call; empty for a cluster job, because the submitting call has checked them."""
    options, _ = read_words(words)
    return [] if options.target_jobs else [*options.targets] or [DEFAULT_TARGET]
