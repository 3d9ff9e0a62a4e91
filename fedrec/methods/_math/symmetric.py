"""Symmetric products, computed for about half of their entries."""

from torch import Tensor

_STRIPS = 8
"""Number of strips of rows; with more strips, fewer entries below the diagonal are computed."""


def products_of_rows(matrix: Tensor) -> Tensor:
    """The inner products of every two rows of a matrix: (rows, rows)."""
    total = matrix.new_empty(len(matrix), len(matrix))
    step = max(1, -(-len(matrix) // _STRIPS))
    for first in range(0, len(matrix), step):
        strip = matrix[first : first + step] @ matrix[first:].T
        total[first : first + step, first:] = strip
        total[first:, first : first + step] = strip.T
    return total
