"""Training steps for vectors that propagate over a graph, by the kernels of `propagation_kernels`."""

import logging
from collections.abc import Mapping
from typing import Protocol

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.adam import Adam
from fedrec.central.steps import EpochSamples, Steps
from fedrec.errors import NoCompilerError
from fedrec.methods._math.graph import Graph, matrix_fits
from fedrec.methods._math.propagation_kernels import MOVED, Shape
from fedrec.native.kernel import AnyKernel, Argument, Kernel

logger = logging.getLogger(__name__)

_TO_BEGIN = 3
"""Fixed cost of a piece of a product, in units of its turns."""
_ALL = 1 << 40
"""Number of pieces above any number of workers."""
_MOST_NODES = 12
"""Most nodes of a training row: the user, the positive and the negatives."""
_STEPS_AT_ONCE = 64
"""Number of steps per CUDA graph; those after the last step of an epoch do nothing."""


class RankedPairs(Protocol):
    """Interface of a method that scores by inner products of propagated vectors."""

    users: int
    items: int
    pairwise: bool
    """Whether its loss compares negatives with their positive (BPR), instead of the entropy of each."""
    settings: Mapping[str, float]


def fits_kernels(width: int, nodes: int) -> bool:
    """Whether there are kernels for vectors of this width, and training rows of so many nodes."""
    return width in (4, 8, 16, 32, 64, 128) and nodes <= _MOST_NODES


def propagation_steps(
    method: RankedPairs, graph: Graph, optimiser: Adam, device: torch.device
) -> Steps | None:
    """The compiled steps of a method over a graph, or None; on a GPU with enough memory, log the reason."""
    width, nodes = int(method.settings["d"]), 2 + int(method.settings["negatives"])
    if not matrix_fits(graph, device):
        return None
    try:
        if not fits_kernels(width, nodes):
            raise NoCompilerError(f"there are no kernels for vectors of {width} and rows of {nodes} nodes")
        return PropagationSteps(method, optimiser, graph.matrix(int(method.settings["depth"])))
    except NoCompilerError as error:
        logger.warning("lightgcn: training is not compiled: %s", error)
        return None


def pieces_of(turns: int, tiles: int, workers: int) -> int:
    """The number of pieces into which to cut the `turns` of each of `tiles`, so that `workers` finish early.

    All pieces but the last have equal length, and none is empty.
    """

    def time(pieces: int) -> int:
        return -(-tiles * pieces // workers) * (-(-turns // pieces) + _TO_BEGIN)

    pieces = min(range(1, turns + 1), key=time)
    return -(-turns // -(-turns // pieces))


class PropagationSteps(Steps):
    """Adam's steps on the vectors `P` and `Q` of a method, propagated by `matrix` (nodes, nodes).

    A GPU records them once as a CUDA graph, and replays it. Raise `NoCompilerError` if the device has no
    kernels.
    """

    status = "compiled"

    def __init__(self, method: RankedPairs, optimiser: Adam, matrix: Tensor) -> None:
        self._optimiser, self._matrix = optimiser, matrix
        values, device = optimiser.values, matrix.device
        width, nodes = values["P"].shape[1], 2 + int(method.settings["negatives"])
        shape = Shape(width, nodes, method.pairwise, matrix.dtype == torch.float64)
        self._batch_size = int(method.settings["batch_size"])
        self._kernels = self.kernels(shape)
        chosen, count = self._batch_size * nodes, len(matrix)
        columns, tiles = -(-count // shape.columns), -(-chosen // shape.together)
        stretches = pieces_of(columns, tiles, self._kernels["products"].workers(_ALL))
        turns, places = -(-chosen // shape.turn), -(-count // shape.beside)
        shares = pieces_of(turns, places, self._kernels["sums"].workers(_ALL))
        self._pieces = {
            "products": tiles * stretches, "slopes": self._batch_size, "sums": places * shares,
            "moves": -(-count * width // MOVED),
        }  # fmt: skip
        self._counters = torch.zeros(2, dtype=torch.int64, device=device)
        self._given: dict[str, Argument] = {
            "counters": self._counters, "batch": self._batch_size, "matrix": matrix,
            "users": method.users, "items": method.items,
            "reg": method.settings["reg"], "rate": optimiser.rate,
            "stretches": stretches, "stretch": -(-columns // stretches) * shape.columns,
            "shares": shares, "share": -(-turns // shares) * shape.turn,
            "chosen": torch.zeros(chosen, dtype=torch.int64, device=device),
            "times": torch.zeros(count, dtype=torch.int32, device=device),
            "parts": torch.zeros(stretches * chosen * width, dtype=matrix.dtype, device=device),
            "slopes": torch.zeros(chosen * width, dtype=matrix.dtype, device=device),
            "sums": torch.zeros(shares * count * width, dtype=matrix.dtype, device=device),
            "now": torch.zeros(2, dtype=torch.int64, device=device),
            "factors": torch.zeros(2, dtype=torch.float64, device=device),
            "lost": torch.zeros(self._batch_size, dtype=matrix.dtype, device=device),
        }  # fmt: skip
        for name in ("P", "Q"):
            first, second = optimiser.moments(name)
            self._given |= {name: values[name].detach(), f"{name}_first": first, f"{name}_second": second}
        self._samples: EpochSamples | None = None
        self._record: torch.cuda.CUDAGraph | None = None

    def kernels(self, shape: Shape) -> dict[str, AnyKernel]:
        """The kernels of a shape, for the device of the matrix."""
        device, lanes = self._matrix.device, shape.lanes
        return {name: Kernel(source, device, lanes[name]) for name, source in shape.sources().items()}

    @override
    def epoch(self, samples: EpochSamples) -> float:
        self._place(samples)
        steps = -(-len(samples.user) // self._batch_size)
        self._counters.copy_(torch.tensor([0, self._optimiser.taken]))
        if self._matrix.device.type == "cuda":
            self._play(steps)
        else:
            for _ in range(steps):
                self._take_one()
        self._optimiser.advance(steps)
        return float(self._losses.mean())

    def _place(self, samples: EpochSamples) -> None:
        """Copy samples to the buffers that the recorded steps read."""
        if self._samples is None:
            self._samples = EpochSamples(*(tensor.clone().contiguous() for tensor in samples.tensors()))
            steps = -(-len(samples.user) // self._batch_size)
            self._losses = torch.zeros(steps, dtype=self._matrix.dtype, device=self._matrix.device)
            user, item, label = self._samples.tensors()
            self._given |= {
                "sample_user": user, "sample_item": item, "sample_label": label, "every": len(user),
                "losses": self._losses,
            }  # fmt: skip
            return
        for own, tensor in zip(self._samples.tensors(), samples.tensors(), strict=True):
            own.copy_(tensor)

    def _play(self, steps: int) -> None:
        if self._record is None:
            # Torch loads modules at first use, which a CUDA graph must not record.
            self._take_one()
            steps -= 1
            self._record = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self._record):
                for _ in range(_STEPS_AT_ONCE):
                    self._take_one()
        for _ in range(0, steps, _STEPS_AT_ONCE):
            self._record.replay()

    def _take_one(self) -> None:
        for name, kernel in self._kernels.items():
            kernel(self._pieces[name], **self._given)
