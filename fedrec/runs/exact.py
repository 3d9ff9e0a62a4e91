"""Exact metrics: of the rank of a test item among all items, where sampled ones rank it among candidates."""

EXACT = "exact_"
"""The beginning of the name of an exact metric: `exact_hr@10` is HR@10 among all items."""
UNEVEN_POOL = "exclude_train_and_candidates"
"""The pool under which candidates alone are never pushed down: fair among them, and not among all items."""
EXACT_METRICS = tuple(f"{EXACT}{name}@{cutoff}" for cutoff in (10, 20) for name in ("hr", "ndcg", "mrr"))
"""Those that stand beside sampled ones."""


def exact_name(metric: str) -> str:
    """The name of the exact metric that corresponds to a sampled one."""
    return f"{EXACT}{metric}"


def sampled_name(metric: str) -> str:
    """The name of the sampled metric that an exact one corresponds to; a sampled one as it is."""
    return metric.removeprefix(EXACT)


def is_exact(metric: str) -> bool:
    """Whether a metric is of ranks among all items."""
    return metric.startswith(EXACT)


def metric_title(metric: str) -> str:
    """`HR@10` for `hr@10`, `exact HR@10` for `exact_hr@10`."""
    return f"{'exact ' * is_exact(metric)}{sampled_name(metric).upper()}"
