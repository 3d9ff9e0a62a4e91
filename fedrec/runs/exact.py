"""Exact metrics: of the rank of a test item among all items, where sampled ones rank it among candidates."""

EXACT = "exact_"
"""What the name of an exact metric begins with: `exact_hr@10` is HR@10 among all items."""


def sampled_name(metric: str) -> str:
    """The name of the sampled metric that an exact one corresponds to; a sampled one as it is."""
    return metric.removeprefix(EXACT)


def is_exact(metric: str) -> bool:
    """Whether a metric is of ranks among all items."""
    return metric.startswith(EXACT)
