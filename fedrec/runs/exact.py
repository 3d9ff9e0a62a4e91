"""Exact metrics, from the rank of a test item among all items. Sampled metrics rank it among candidates."""

EXACT = "exact_"
"""The prefix of an exact metric's name: `exact_hr@10` is HR@10 among all items."""
UNEVEN_POOL = "exclude_train_and_candidates"
"""The pool without candidates: fair for sampled metrics, but unfair for exact ones, since training lowers the
scores of all other items only."""
EXACT_METRICS = tuple(f"{EXACT}{name}@{cutoff}" for cutoff in (10, 20) for name in ("hr", "ndcg", "mrr"))
"""The exact metrics that tables show beside sampled ones."""


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
