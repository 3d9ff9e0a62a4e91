"""Vocabulary of scores and losses: parameters by name, mini-batches, and common terms.

In a score, `w.Q[items]` are the rows of a table for a batch of items, and `w.p` is a vector. Engines may add
leading axes; `dot(w.Q[items], w.p)` is correct with every engine.

- `w.interactions` is the client's number of training interactions.
- `w.held` is 1 if the last round aggregated its uploads, so that it has the server's result, else 0.
- `w.own` is a table (items, 1): 1 for the client's training items, else 0.
- `w.history(length)` has the last training items in order of time.
"""

from collections.abc import Callable
from typing import Protocol, TypeAlias

from torch import Tensor
from torch.nn import functional

from fedrec.federation.model.history import History


class Part(Tensor):
    """Static type of `w.name`: a tensor, or a table, which has only the methods below.

    No object of this class exists; engines give tensors and tables.
    """

    def whole(self) -> Tensor:
        """All rows of a table. A loss that reads them makes every row active on engines."""
        raise NotImplementedError

    def training_sum(self) -> Tensor:
        """The sum of the rows of the client's training items, shaped as a vector (PerFedRec)."""
        raise NotImplementedError

    def squared_norm(self) -> Tensor:
        """The sum of the squares of the whole table, shaped as a vector of size 1 (PLGC)."""
        raise NotImplementedError

    def row_sum(self) -> Tensor:
        """The sum of all rows, shaped as a vector (EM with `merge=dynamic`)."""
        raise NotImplementedError


class Weights(Protocol):
    """The parameters of a client, or of many clients, by name."""

    def __getattr__(self, name: str) -> Part:
        """The parameter called `name`."""

    def __getitem__(self, name: str) -> Part:
        """The parameter called `name`, also for names that are no attribute, such as `mlp.0`."""

    def __contains__(self, name: object) -> bool:
        """Whether there is a parameter called `name`."""

    def history(self, length: int) -> History:
        """The client's last training items, shaped as a vector; only in scores (see `Batch.history`)."""


class Batch(Protocol):
    """The samples of one mini-batch per client."""

    labels: Tensor

    @property
    def items(self) -> Tensor:
        """Index object of the samples' rows of a table, `w.Q[batch.items]`; not a tensor."""

    @property
    def size(self) -> Tensor:
        """Number of samples in the client's mini-batch (CoLR)."""

    def mean(self, values: Tensor) -> Tensor:
        """The mean of one value per sample over each client's samples."""

    def sum(self, values: Tensor) -> Tensor:
        """The sum of one value per sample over each client's samples: one number per client."""

    def logsumexp(self, values: Tensor) -> Tensor:
        """The logarithm of the sum of exponentials of one value per sample: one number per client."""

    def softmax(self, values: Tensor) -> Tensor:
        """The softmax of one value per sample over each client's samples."""

    def history(self, length: int) -> History:
        """For each sample, the last training items before its positive; negatives share their positive's."""

    def distinct(self) -> Tensor:
        """1 for one sample of every distinct item of the client's mini-batch, 0 for all others (PLGC)."""

    def occurrences(self) -> Tensor:
        """For each sample, how many samples of the client's mini-batch have the same item (CoLR)."""


Loss: TypeAlias = Callable[[Weights, Batch], Tensor]
RowsOf: TypeAlias = Callable[[Weights, Tensor], Tensor]
"""Computes the new rows of a table for some items, each from the same rows of other tables."""


def dot(a: Tensor, b: Tensor) -> Tensor:
    """The inner product of vectors over the last axis."""
    return (a * b).sum(-1)


def transformed(x: Tensor, matrix: Tensor) -> Tensor:
    """Vectors of histories (..., samples, length, d) times a matrix, which has no axis of samples."""
    return x @ matrix.unsqueeze(-3)


def mean_entropy(scores: Tensor, batch: Batch) -> Tensor:
    """The mean binary cross-entropy of each client's samples, given their logits."""
    return batch.mean(functional.binary_cross_entropy_with_logits(scores, batch.labels, reduction="none"))


def perceptron(w: Weights, name: str, x: Tensor) -> Tensor:
    """The output of the perceptron `name` (see `parameters.mlp`), with ReLU between its layers."""
    layer = 0
    while True:
        x = x @ w[f"{name}.{layer}"] + w[f"{name}.{layer}.bias"]
        layer += 1
        if f"{name}.{layer}" not in w:
            return x
        x = functional.relu(x)
