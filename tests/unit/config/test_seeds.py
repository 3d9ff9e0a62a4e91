import pytest

from fedrec.config.seeds import LARGEST_SEED, check_seed
from fedrec.errors import ConfigurationError


def test_seeds_have_bounds():
    check_seed(0)
    check_seed(LARGEST_SEED)
    for seed in (-1, LARGEST_SEED + 1, 2**64):
        with pytest.raises(ConfigurationError, match=rf"seed {seed} is not allowed.* from 0 to 4294967295"):
            check_seed(seed)
