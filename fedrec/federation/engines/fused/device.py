"""The devices that kernels are written for, with every size by which the compiler decides."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A device, by default a GPU of the kind H200. A CPU uses the sizes that say so."""

    is_gpu: bool = True
    register_sums: int = 40
    """Sums over samples that every lane keeps in registers; of more, each lane computes some."""
    lane_products: int = 256
    """Products of numbers that one lane computes for its sample; lanes share larger ones."""
    shared_sum: int = 64
    """Terms of a client's sum from which on lanes share it, instead of each computing all of it."""
    bytes_per_lane: int = 352
    """Bytes of a block's memory for each of its lanes: with all lanes a block has a processor's memory."""
    block_bytes: int | None = None
    """Memory that a block can get; None if no less than its lanes can use."""
    block_samples: int = 256
    """The largest number of samples of a block."""
    samples_step: int = 16
    """The number of samples of a block is a multiple of it."""
    distant_samples: int = 32
    """Samples of a block that finds no room near its lanes."""
    fast_bytes: int = 36 * 1024
    """Bytes of fast memory for arrays: shared memory of a GPU, the stack of a CPU."""
    fewest_lanes: int = 32
    most_lanes: int = 512
    """The fewest and most threads that train a client on a GPU."""
    lanes_per_sample: int = 2
    """A row has more numbers than a lane should move alone."""


H200 = Device()
"""The GPU that sizes were measured on."""
CPU = Device(is_gpu=False, fast_bytes=256 * 1024)


def lanes_for(batch: int, target: Device = H200) -> int:
    """The threads of a block on a GPU: some for each sample of a mini-batch, as far as possible."""
    wanted = target.lanes_per_sample << (batch - 1).bit_length()
    return max(target.fewest_lanes, min(target.most_lanes, wanted))
