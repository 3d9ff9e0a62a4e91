"""The devices that kernels are written for: every threshold by which the compiler decides.

The module gives a `Device` to the passes, the backend and the kernel, and the number of lanes of a client.
The head of `passes/schedule.py` defines lane, block, sample, spill and shared memory.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Device:
    """A device. The defaults are those of an H200; a CPU reads only `is_gpu` and `fast_bytes`."""

    is_gpu: bool = True
    """Whether it is a GPU, where a client has many lanes; on a CPU a client has one."""
    register_sums: int = 40
    """The most numbers of sums over samples that each lane keeps in registers. Lanes share further sums."""
    lane_products: int = 256
    """The most multiplications of a product that one lane does for its sample. Lanes share larger ones."""
    shared_sum: int = 64
    """The fewest terms of a client's sum that lanes share. Every lane computes shorter sums whole."""
    bytes_per_lane: int = 352
    """Bytes of shared memory for blocks, per lane: `most_lanes` lanes use what a processor of the GPU has."""
    block_bytes: int | None = None
    """Bytes of shared memory that the GPU can give to blocks; None if `bytes_per_lane` is the only limit."""
    block_samples: int = 256
    """The most samples of a block."""
    samples_step: int = 16
    """The samples of a block are a multiple of this number."""
    distant_samples: int = 32
    """Samples of a block whose arrays do not fit into shared memory and spill."""
    fast_bytes: int = 36 * 1024
    """Bytes for other arrays in shared memory, on a CPU on the stack. Arrays beyond that spill."""
    fewest_lanes: int = 32
    """The fewest lanes of a client on a GPU."""
    most_lanes: int = 512
    """The most lanes of a client on a GPU."""
    lanes_per_sample: int = 2
    """Lanes for each sample of a mini-batch: one lane alone would take long to move all numbers of a row."""


H200 = Device()
"""The GPU on which the thresholds were measured."""
CPU = Device(is_gpu=False, fast_bytes=256 * 1024)
"""A CPU: one lane per client."""


def lanes_for(batch: int, target: Device = H200) -> int:
    """The lanes of a client on a GPU, a power of two: `lanes_per_sample` per sample, within the limits."""
    wanted = target.lanes_per_sample << (batch - 1).bit_length()
    return max(target.fewest_lanes, min(target.most_lanes, wanted))
