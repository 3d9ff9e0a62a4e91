"""Every implementation of Philox gives the same words, and those that its authors publish."""

import numpy as np
import pytest
import torch

from fedrec.random import with_numpy, with_torch
from tests.unit.random.vectors import KNOWN_ANSWERS


def by_numpy(counters, seed):
    return with_numpy.philox(tuple(np.array(counters).T), seed).tolist()


def by_torch(counters, seed):
    """The last two words of a counter are the same in a whole call: one call for each counter."""
    words = [
        with_torch.philox(torch.tensor([c0]), torch.tensor([c1]), c2, c3, seed) for c0, c1, c2, c3 in counters
    ]
    return torch.cat(words).tolist()


IMPLEMENTATIONS = [by_numpy, by_torch]


@pytest.mark.parametrize("words_of", IMPLEMENTATIONS)
@pytest.mark.parametrize(("counter", "seed", "expected"), KNOWN_ANSWERS)
def test_the_published_answers(words_of, counter, seed, expected):
    assert words_of([counter], seed) == [list(expected)]


@pytest.mark.parametrize("words_of", IMPLEMENTATIONS[1:])
def test_all_give_the_same_words(words_of):
    generator = np.random.default_rng(0)
    counters = generator.integers(0, 2**32, size=(200, 4)).tolist()
    for seed in (0, 7, 2**40 + 5, 2**64 - 1):
        assert words_of(counters, seed) == by_numpy(counters, seed)


def test_torch_takes_many_counters_at_once():
    place, user = torch.arange(5), torch.arange(1000, 1050)
    words = with_torch.philox(place, user.unsqueeze(1), 3, 8, 2**40 + 5)
    expected = with_numpy.philox((place.numpy(), user.numpy()[:, None], 3, 8), 2**40 + 5)
    assert np.array_equal(words.numpy(), expected.astype(np.int64))
