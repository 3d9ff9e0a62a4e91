"""Advice on code that breaks a rule: the code to write instead."""

from torch import Tensor

from fedrec.federation.rules.torch_calls import TorchCall

FROM_THE_END = (
    "Engines compute many clients at once: an axis of clients stands in front of those you see. Count axes "
    "from the end: x.sum(-1), x.sum((-1, -2)), x.mT, x[..., 0]"
)
ANOTHER_WAY = (
    "Python goes another way through it for another number of samples. A loss is the same computation for "
    "every client and mini-batch: write torch.where(condition, a, b) and batch.size"
)
UNKNOWN = (
    "it is another for a mini-batch that is filled up with samples that must not count. Sum over samples by "
    "batch.mean, batch.sum, batch.logsumexp and batch.softmax alone"
)
SHAPES = {
    "loss": "take the mean over samples by batch.mean(...), and sums over other axes by sum(-1)",
    "score": "one number per item, as dot(w.Q[items], w.p) gives",
    "rewrite": "one row per item, as wide as the table. A vector cannot be rewritten",
}
"""Advice on the shape that each kind of function must return."""
_REPLACEMENTS = {
    "sum": "batch.sum(values)",
    "mean": "batch.mean(values)",
    "logsumexp": "batch.logsumexp(values)",
    "softmax": "batch.softmax(values)",
    "log_softmax": "values - batch.logsumexp(values).unsqueeze(-1)",
    "norm": "batch.sum(values.square()).sqrt()",
    "vector_norm": "batch.sum(values.square()).sqrt()",
    "var": "batch.mean of the squared differences from batch.mean",
    "std": "the root of batch.mean of the squared differences from batch.mean",
} | dict.fromkeys(
    (
        "binary_cross_entropy_with_logits",
        "binary_cross_entropy",
        "mse_loss",
        "l1_loss",
        "smooth_l1_loss",
        "huber_loss",
    ),
    'batch.mean(...) of what it gives with reduction="none"',
)
_PRODUCTS = ("matmul", "mm", "bmm", "mv", "dot", "einsum", "tensordot", "inner", "linear", "baddbmm")
_OVER_SAMPLES = "A loss sums over samples by batch.mean, batch.sum, batch.logsumexp and batch.softmax alone"


def on_samples(plain: TorchCall, filled: TorchCall, real: Tensor) -> str:
    """The forbidden use of samples by a call, and the code to write instead."""
    name = plain.name.strip("_")
    if _numbers(plain) != _numbers(filled) and not _removes_sample_axis(plain, real):
        return (
            f"a number given to {name} is another for the same client in a mini-batch that is filled up. "
            "Where it is the number of samples, write batch.size, a tensor of one number per client; a loss "
            "draws nothing at random"
        )
    if name in _PRODUCTS:
        return (
            f"{name} sums over the samples of the mini-batch, which engines fill up. {_OVER_SAMPLES}; a "
            "product may, where one of its factors is 0 on what fills up, as batch.distinct() is"
        )
    if name in _REPLACEMENTS:
        return (
            f"{name} over the samples of the mini-batch, which engines fill up. Write {_REPLACEMENTS[name]}, "
            "of one number per sample"
        )
    return (
        f"{name} orders, picks or mixes the samples of the mini-batch, which stand in any order and are "
        f"filled up. {_OVER_SAMPLES}"
    )


def _removes_sample_axis(called: TorchCall, real: Tensor) -> bool:
    """Whether a call removes an axis of samples."""
    count = int(real.count_nonzero())
    given = [part for part in called.arguments if isinstance(part, Tensor)]
    return any(count in part.shape for part in given) and all(
        count not in part.shape for part in called.results
    )


def _numbers(called: TorchCall) -> list[float]:
    return [float(part) for part in called.arguments if isinstance(part, int | float)]
