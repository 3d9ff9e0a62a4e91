"""Information abundance of tables."""

import pytest
import torch

from fedrec.federation.observe.spectrum import information_abundance


def test_rows_on_one_line_use_one_dimension():
    line = torch.tensor([[1.0, 2.0], [2.0, 4.0], [-3.0, -6.0]])
    assert float(information_abundance(line)) == pytest.approx(1.0, abs=1e-6)


def test_equal_singular_values_use_all():
    # Singular values 2 and 2: (2 + 2) / 2.
    assert float(information_abundance(torch.tensor([[2.0, 0.0], [0.0, 2.0], [0.0, 0.0]]))) == 2.0
    # Singular values 4 and 1: 5 / 4.
    assert float(information_abundance(torch.tensor([[4.0, 0.0], [0.0, 1.0]]))) == pytest.approx(1.25)


def test_many_tables_at_once_equal_the_singular_values_of_each():
    tables = torch.randn(5, 30, 4, generator=torch.Generator().manual_seed(0))
    values = torch.linalg.svdvals(tables.double())
    assert torch.allclose(information_abundance(tables), values.sum(1) / values[:, 0])


def test_a_table_of_zeros_is_no_error():
    assert float(information_abundance(torch.zeros(3, 2))) == 0.0
