"""How a server weighs uploads: distances, directions, neighbours, first components, and the simplex."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedrec.errors import DivergenceError
from fedrec.federation.server import mixing
from fedrec.federation.server.mixing import mean_of, means_of
from fedrec.federation.server.personal import PersonalTensor
from fedrec.federation.server.uploads import FlatUploads
from fedrec.federation.state.dense import DenseClientTensor
from fedrec.federation.state.sparse_rows import SparseRowsTensor
from fedrec.methods._math.similarity import (
    cosine_distances,
    first_components,
    neighbours,
    same_direction,
    squared_distances,
)
from fedrec.methods._math.simplex import project_on_simplex
from fedrec.methods._math.symmetric import products_of_rows

pytestmark = pytest.mark.usefixtures("double_precision")

vectors = st.integers(1, 8).flatmap(
    lambda size: st.lists(st.floats(-5, 5, width=32), min_size=size, max_size=size)
)


def drawn(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize(
    ("vector", "nearest"),
    [
        ([0.2, 0.3, 0.5], [0.2, 0.3, 0.5]),
        ([1.0, 1.0], [0.5, 0.5]),
        ([0.0, 0.0, 0.0, 0.0], [0.25, 0.25, 0.25, 0.25]),
        # Take 1/4 from each of the first two; the third would be negative.
        ([1.0, 0.5, -3.0], [0.75, 0.25, 0.0]),
        ([3.0, 0.5, 0.5], [1.0, 0.0, 0.0]),
        ([-7.0], [1.0]),
    ],
)
def test_the_nearest_point_of_the_simplex_by_hand(vector, nearest):
    assert project_on_simplex(torch.tensor([vector]))[0].tolist() == pytest.approx(nearest)


def test_every_row_is_projected_by_itself():
    together = drawn(50, 6)
    alone = torch.cat([project_on_simplex(row.unsqueeze(0)) for row in together])
    assert torch.allclose(project_on_simplex(together), alone, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("seed", range(5))
def test_the_projection_is_what_quadratic_programming_finds(seed):
    wanted = drawn(7, seed=seed).numpy()
    found = minimize(
        lambda x: ((x - wanted) ** 2).sum(),
        np.full(7, 1 / 7),
        jac=lambda x: 2 * (x - wanted),
        method="SLSQP",
        bounds=[(0, None)] * 7,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1, "jac": np.ones_like},
        options={"ftol": 1e-14, "maxiter": 500},
    )
    assert found.success
    projected = project_on_simplex(torch.from_numpy(wanted).unsqueeze(0))[0]
    assert np.allclose(projected.numpy(), found.x, atol=1e-6)


@given(vectors, st.integers(0, 2**32 - 1))
def test_the_projection_lies_on_the_simplex_and_nothing_there_is_nearer(vector, seed):
    wanted = torch.tensor([vector], dtype=torch.float64)
    found = project_on_simplex(wanted)
    assert (found >= 0).all()
    assert float(found.sum()) == pytest.approx(1.0, abs=1e-12)
    assert torch.allclose(project_on_simplex(found), found, atol=1e-12)
    distance = float((found - wanted).square().sum())
    others = np.vstack((np.random.default_rng(seed).dirichlet(np.ones(len(vector)), 50), np.eye(len(vector))))
    assert (((others - np.array(vector)) ** 2).sum(1) >= distance - 1e-9).all()


@given(vectors, st.floats(-10, 10))
def test_adding_one_number_to_all_changes_nothing(vector, shift):
    wanted = torch.tensor([vector], dtype=torch.float64)
    assert torch.allclose(project_on_simplex(wanted + shift), project_on_simplex(wanted), atol=1e-9)


def test_squared_distances_by_hand():
    found = squared_distances(FlatUploads(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])))
    assert torch.allclose(found, torch.tensor([[0.0, 25.0, 1.0], [25.0, 0.0, 18.0], [1.0, 18.0, 0.0]]))


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(1, 40), st.floats(-100, 100), st.integers(0, 1000))
def test_squared_distances_are_those_of_every_pair(clients, size, common, seed):
    rows = drawn(clients, size, seed=seed) + common
    found = squared_distances(FlatUploads(rows))
    assert torch.allclose(found, torch.cdist(rows, rows).square(), rtol=1e-9, atol=1e-9)
    assert (found >= 0).all()
    assert (found.diagonal() == 0).all()


def test_what_rows_have_in_common_does_not_drown_their_differences():
    """In single precision 1e4 squared leaves no digit for differences of 1e-2."""
    small = 1e-2 * drawn(5, 30)
    found = squared_distances(FlatUploads((small + 1e4).float()))
    exact = torch.cdist((small + 1e4).float().double(), (small + 1e4).float().double()).square()
    assert torch.allclose(found.double(), exact, rtol=1e-3, atol=1e-6)


def test_the_first_component_by_hand():
    # Rows on a line along (3, 4) / 5, at -5, 0 and 5 from their mean.
    table = torch.tensor([[[10.0 - 3, 20.0 - 4], [10.0, 20.0], [10.0 + 3, 20.0 + 4]]])
    assert first_components(table)[0].tolist() == pytest.approx([-5.0, 0.0, 5.0], abs=1e-12)


def test_the_first_component_is_the_leading_singular_vector_up_to_its_sign():
    tables = drawn(6, 20, 4) * torch.tensor([5.0, 1.0, 0.5, 0.2])
    found = first_components(tables)
    for table, component in zip(tables.numpy(), found.numpy(), strict=True):
        left, values, right = np.linalg.svd(table - table.mean(0), full_matrices=False)
        expected = left[:, 0] * values[0]
        # The sign: the largest coordinate of the axis is positive.
        axis = right[0] * np.sign(expected @ component)
        assert axis[np.abs(axis).argmax()] > 0
        assert np.allclose(component, expected * np.sign(expected @ component), atol=1e-10)


def test_equal_tables_have_equal_components_and_a_shift_of_all_rows_does_not_matter():
    tables = drawn(1, 20, 4).expand(3, -1, -1) + torch.tensor([0.0, 1.0, 2.0])[:, None, None]
    found = first_components(tables)
    assert torch.allclose(found[0], found[1], atol=1e-12)
    assert torch.allclose(found[0], found[2], atol=1e-12)


@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_table_without_a_principal_axis_has_diverged(number):
    table = drawn(2, 5, 3)
    table[1, 2, 0] = number
    with pytest.raises(DivergenceError, match="Lower the learning rate"):
        first_components(table)


def test_cosine_distances_by_hand():
    # Cosines 24/25, -1 and 0; lengths do not matter.
    found = cosine_distances(FlatUploads(torch.tensor([[3.0, 4.0], [8.0, 6.0], [-0.3, -0.4], [-4.0, 3.0]])))
    assert torch.allclose(found[0], torch.tensor([0.0, 0.04, 2.0, 1.0]), atol=1e-12)
    assert torch.equal(found.diagonal(), torch.zeros(4))
    assert torch.allclose(found, found.T, rtol=1e-12, atol=1e-15)


def test_directions_that_are_almost_equal_are_told_apart_in_single_precision():
    """1 minus a cosine of 1 - 1e-8 would be nothing but rounding."""
    rows = 1.0 + 1e-4 * drawn(5, 400)
    found = cosine_distances(FlatUploads(rows.float()))
    exact = 1 - torch.nn.functional.cosine_similarity(rows[:, None], rows[None], dim=-1)
    assert float(exact.max()) < 2e-8
    assert torch.allclose(found.double(), exact, rtol=2e-2, atol=1e-10)


def test_same_direction_by_hand():
    # Ways from (1, 1): (3, 4), (4, 3), (-3, -4), (4, -3) and (6, 1), whose cosine with (4, 3) is 0.888.
    rows = torch.tensor([[4.0, 5.0], [5.0, 4.0], [-2.0, -3.0], [5.0, -2.0], [7.0, 2.0]])
    found = same_direction(FlatUploads(rows), torch.tensor([1.0, 1.0]))
    # 24/25 is above 0.9 and taken for 1; opposite ways keep their -1.
    assert found[0, :4].tolist() == pytest.approx([1.0, 1.0, -1.0, 0.0], abs=1e-12)
    assert float(found[0, 1]) == 1.0
    assert float(found[1, 4]) == pytest.approx(27 / (5 * np.sqrt(37)))
    assert torch.equal(found.diagonal(), torch.ones(5))
    assert torch.allclose(found, found.T)


def test_who_has_not_moved_is_like_itself_alone():
    found = same_direction(
        FlatUploads(torch.tensor([[1.0, 1.0], [2.0, 1.0], [2.0, 1.5]])), torch.tensor([1.0, 1.0])
    )
    assert found[0].tolist() == [1.0, 0.0, 0.0]
    assert float(found[1, 2]) == pytest.approx(1 / np.sqrt(1.25))


@pytest.mark.parametrize("numbers", [1, 30, 70])
def test_looking_at_some_columns_at_a_time_changes_nothing(monkeypatch, numbers):
    rows, start = drawn(6, 40), drawn(1, 40, seed=1)[0]
    expected = (
        squared_distances(FlatUploads(rows)),
        cosine_distances(FlatUploads(rows)),
        same_direction(FlatUploads(rows), start),
    )
    monkeypatch.setattr(mixing, "_CHUNK", numbers)
    found = (
        squared_distances(FlatUploads(rows)),
        cosine_distances(FlatUploads(rows)),
        same_direction(FlatUploads(rows), start),
    )
    for one, other in zip(found, expected, strict=True):
        assert torch.allclose(one, other, rtol=1e-12, atol=1e-12)


LIKENESS = torch.tensor([[0.0, 0.2, 0.8], [0.2, 0.0, 0.5], [0.8, 0.5, 0.0]], dtype=torch.float64)
# Their mean, with the zeros on the diagonal, is 3/9.


def test_neighbours_are_above_the_mean_of_all_pairs():
    assert neighbours(LIKENESS, 1.0, None).tolist() == [[0, 0, 1], [0, 0, 1], [0.5, 0.5, 0]]
    # Above half of it, 1/6, everyone else is.
    assert neighbours(LIKENESS, 0.5, None).tolist() == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]


def test_who_has_no_neighbour_is_its_own():
    # Above twice the mean, 2/3, are only the first and the third.
    assert neighbours(LIKENESS, 2.0, None).tolist() == [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    assert torch.equal(neighbours(LIKENESS, 1000.0, None), torch.eye(3))
    # Equal to the mean is not above it.
    assert torch.equal(neighbours(torch.ones(4, 4), 1.0, None), torch.eye(4))


def test_a_fixed_number_of_neighbours_are_the_most_alike():
    assert neighbours(LIKENESS, 1.0, 1).tolist() == [[0, 0, 1], [0, 0, 1], [1, 0, 0]]
    assert neighbours(LIKENESS, 1000.0, 2).tolist() == [[0, 0.5, 0.5], [0.5, 0, 0.5], [0.5, 0.5, 0]]
    # There are no more than everyone.
    assert torch.allclose(neighbours(LIKENESS, 1.0, 9), torch.full((3, 3), 1 / 3, dtype=torch.float64))


@pytest.mark.parametrize("store", [DenseClientTensor, SparseRowsTensor])
@pytest.mark.parametrize("numbers", [1, 7, 1000])
def test_the_mean_of_what_some_clients_hold(monkeypatch, store, numbers):
    monkeypatch.setattr(mixing, "_CHUNK", numbers)
    tables = drawn(5, 3, 2)
    kept = store(torch.zeros(3, 2), 5)
    kept.put(torch.arange(5), tables)
    some = torch.tensor([0, 2, 3])
    values = PersonalTensor(kept, 5)
    assert torch.allclose(mean_of(values, some), tables[some].mean(0), atol=1e-12)
    # Several at once, whatever their weights add up to.
    weights = torch.tensor([[1.0, 0.0, 3.0], [0.0, 2.0, 0.0]])
    expected = torch.stack(((tables[0] + 3 * tables[3]) / 4, tables[2]))
    assert torch.allclose(means_of(values, some, weights), expected, atol=1e-12)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 30])
def test_products_of_rows_are_the_whole_symmetric_matrix(rows):
    matrix = drawn(rows, 3)
    product = products_of_rows(matrix)
    assert torch.allclose(product, matrix @ matrix.T, atol=1e-12)
    assert torch.equal(product, product.T)
