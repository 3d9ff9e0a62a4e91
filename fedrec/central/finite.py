"""Detection of a diverged model."""

from collections.abc import Mapping

from torch import Tensor

from fedrec.errors import DivergenceError


def check_model_finite(epoch: int, loss: float, values: Mapping[str, Tensor]) -> None:
    """Raise `DivergenceError` if a value is not finite or the loss is NaN."""
    broken = [name for name, value in values.items() if not value.isfinite().all()]
    if broken or loss != loss:
        raise DivergenceError(
            f"epoch {epoch}: training diverged; {', '.join(broken) or 'the loss'} is not finite. "
            "Lower the learning rate."
        )
