"""Clusters of clients by their vectors."""

import pytest
import torch

from fedrec.methods._math.clustering import clusters

HEAPS = torch.tensor([[0.0, 0.0], [0.1, 0.0], [9.0, 9.0], [9.0, 9.1], [0.0, 0.1], [-9.0, 0.0]])


def groups(found):
    """The clusters as sets of clients: their numbers mean nothing."""
    return {frozenset((found == number).nonzero().squeeze(1).tolist()) for number in found.unique()}


@pytest.mark.parametrize("round_", [1, 2, 3])
@pytest.mark.parametrize("seed", [0, 1])
def test_heaps_are_found_from_every_start(seed, round_):
    assert groups(clusters(HEAPS, 3, seed, round_)) == {
        frozenset({0, 1, 4}),
        frozenset({2, 3}),
        frozenset({5}),
    }


def test_a_cluster_is_where_its_mean_is_nearest():
    vectors = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    found = clusters(vectors, 5, 0, 1)
    assert found.unique().tolist() == [0, 1, 2, 3, 4]
    means = torch.stack([vectors[found == number].mean(0) for number in range(5)])
    assert torch.equal(torch.cdist(vectors, means).argmin(1), found)


def test_the_same_round_has_the_same_clusters():
    vectors = torch.randn(80, 3, generator=torch.Generator().manual_seed(0))
    assert torch.equal(clusters(vectors, 5, 3, 2), clusters(vectors.clone(), 5, 3, 2))
    assert torch.equal(clusters(vectors, 5, 3, 2), clusters(vectors.double(), 5, 3, 2))


def test_there_are_no_more_clusters_than_different_vectors():
    """In the first round clients that have not trained all have the same."""
    same = torch.ones(6, 2)
    assert clusters(same, 5, 0, 1).tolist() == [0] * 6
    same[3] = 2
    assert groups(clusters(same, 5, 0, 1)) == {frozenset({0, 1, 2, 4, 5}), frozenset({3})}
    assert groups(clusters(HEAPS, 100, 0, 1)) == {frozenset({client}) for client in range(6)}


def test_large_seeds_are_seeds():
    assert len(clusters(HEAPS, 3, 2**40, 1).unique()) == 3
