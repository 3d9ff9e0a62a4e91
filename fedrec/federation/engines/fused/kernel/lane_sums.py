"""Sums and maxima over the samples or rows of a stage: first of each lane, then of all lanes.

The module gives the statements before and after the loops that compute them.
"""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class LaneSums:
    """The sums of a stage, or its maxima."""

    own: str
    """The array in C of one lane's part."""
    total: str
    """The array in C of all lanes' result."""
    count: int
    """The count of numbers in each array; 0 if the stage has none."""
    largest: bool = False
    """Whether they are maxima."""

    def opened(self) -> Iterator[str]:
        """Statements before the first sample or row."""
        if self.count:
            start = "-(real)INFINITY" if self.largest else "0"
            yield f"real {self.own}[{self.count}];"
            yield f"UNROLL for (int k = 0; k < {self.count}; k++) {self.own}[k] = {start};"

    def closed(self, *, gpu: bool) -> Iterator[str]:
        """Statements after the last sample or row."""
        if self.count:
            yield f"SHARED real {self.total}[{self.count}];"
            if gpu and self.largest:
                yield f"most_of_lanes<{self.count}>({self.own}, {self.total});"
            else:
                yield f"SUM_LANES({self.own}, {self.total}, {self.count});"
