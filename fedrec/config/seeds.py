"""The allowed seeds of runs: on the command line, in the configuration and in a path."""

from fedrec.errors import ConfigurationError

LARGEST_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Raise `ConfigurationError` for an invalid seed: random draws would silently reduce a larger one."""
    if not 0 <= seed <= LARGEST_SEED:
        raise ConfigurationError(
            f"seed {seed} is not allowed: a seed is a whole number from 0 to {LARGEST_SEED}."
        )
