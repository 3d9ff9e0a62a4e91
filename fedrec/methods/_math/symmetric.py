"""Symmetric products: entries below the diagonal are not computed."""

from torch import Tensor

_STRIPS = 8
"""In how many strips of rows a product is computed: little more than half of its numbers then are."""


def products_of_rows(matrix: Tensor) -> Tensor:
    """The product of every two rows of a matrix."""
    total = matrix.new_empty(len(matrix), len(matrix))
    step = max(1, -(-len(matrix) // _STRIPS))
    for first in range(0, len(matrix), step):
        strip = matrix[first : first + step] @ matrix[first:].T
        total[first : first + step, first:] = strip
        total[first:, first : first + step] = strip.T
    return total
