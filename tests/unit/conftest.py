from collections.abc import Iterator

import pytest
import torch


@pytest.fixture
def double_precision() -> Iterator[None]:
    """In double precision a difference is a mistake, and not rounding."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
