"""Sums and largest numbers over the samples or rows of a stage: each lane's own, then those of all lanes."""

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True)
class LaneSums:
    """The sums of a stage, or the largest numbers: the arrays of a lane and of all of them."""

    own: str
    total: str
    count: int
    largest: bool = False

    def opened(self) -> Iterator[str]:
        """Statements before the first sample or row."""
        if self.count:
            start = "-(real)INFINITY" if self.largest else "0"
            yield f"real {self.own}[{self.count}];"
            yield f"UNROLL for (int k = 0; k < {self.count}; k++) {self.own}[k] = {start};"

    def closed(self, *, gpu: bool) -> Iterator[str]:
        """Statements behind the last one."""
        if self.count:
            yield f"SHARED real {self.total}[{self.count}];"
            if gpu and self.largest:
                yield f"most_of_lanes<{self.count}>({self.own}, {self.total});"
            else:
                yield f"SUM_LANES({self.own}, {self.total}, {self.count});"
