"""How a server weighs uploads: distances, first components, and the simplex."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedrec.federation.mixing import first_components, project_on_simplex, squared_distances

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
    assert torch.equal(project_on_simplex(together), alone)


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
    found = squared_distances(torch.tensor([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]]))
    assert torch.allclose(found, torch.tensor([[0.0, 25.0, 1.0], [25.0, 0.0, 18.0], [1.0, 18.0, 0.0]]))


@settings(max_examples=25)
@given(st.integers(1, 12), st.integers(1, 40), st.floats(-100, 100), st.integers(0, 1000))
def test_squared_distances_are_those_of_every_pair(clients, size, common, seed):
    rows = drawn(clients, size, seed=seed) + common
    found = squared_distances(rows)
    assert torch.allclose(found, torch.cdist(rows, rows).square(), rtol=1e-9, atol=1e-9)
    assert (found >= 0).all()
    assert (found.diagonal() == 0).all()


def test_what_rows_have_in_common_does_not_drown_their_differences():
    """In single precision 1e4 squared leaves no digit for differences of 1e-2."""
    small = 1e-2 * drawn(5, 30)
    found = squared_distances((small + 1e4).float())
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
