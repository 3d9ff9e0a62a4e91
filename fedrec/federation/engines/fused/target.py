"""The sizes by which work is shared out among the lanes of a GPU."""

from dataclasses import dataclass


@dataclass(frozen=True)
class TargetDevice:
    """A GPU as kernels are written for it; by default an H200. Kernels for a CPU use none of it."""

    register_sums: int = 40
    """Sums over samples that every lane keeps in registers; of more, each lane adds up some."""
    lane_products: int = 256
    """Products of numbers that one lane does for its sample; larger ones are shared out."""
    shared_sum: int = 64
    """Numbers of a client from which on lanes add them up together, and not each for itself."""
    bytes_per_lane: int = 352
    """Of a block's memory, for each of its lanes: with all lanes a block has a processor's memory."""
    block_bytes: int | None = None
    """Memory that a block can be given; None if no less than its lanes can use."""
    block_samples: int = 256
    """Samples of a block at most."""
    samples_step: int = 16
    """The samples of a block are a multiple of it."""
    distant_samples: int = 32
    """Samples of a block that finds no room near its lanes."""


H200 = TargetDevice()
"""The GPU that sizes were measured on."""
