"""The curve of one run as a figure."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import seaborn as sns
from matplotlib.figure import Figure

from fedrec.errors import ConfigurationError, did_you_mean

if TYPE_CHECKING:
    from fedrec.runs.record import RunRecord

_ROUND = "round"
_PARTS = ("validation", "test")


def curve_figure(run: "RunRecord", metrics: Sequence[str]) -> Figure:
    """Metrics of a run over its rounds; a line marks the round that its protocol reports."""
    known = [name for name in run.curve.columns if name != _ROUND]
    names = [metrics] if isinstance(metrics, str) else metrics
    for name in names:
        if name not in known:
            raise ConfigurationError(
                f"metrics: a curve has no '{name}'.{did_you_mean(name, known)} It has: {', '.join(known)}."
            )
    rounds = run.curve[_ROUND].to_list()
    with sns.axes_style("whitegrid"), sns.color_palette("colorblind"):
        figure = Figure(figsize=(6, 4), layout="constrained")
        axes = figure.subplots()
        for name in names:
            # A run of one round is a point.
            sns.lineplot(
                x=rounds,
                y=run.curve[name].to_list(),
                label=_title(name),
                ax=axes,
                marker="o" * (len(rounds) == 1),
            )
        reported = run.summary["rounds"][run.round_rule]
        axes.axvline(reported, color="gray", linestyle=":", label=f"reported round {reported}")
    axes.set(
        xlabel="round",
        ylabel="",
        title=f"{run.id.method} on {run.id.dataset}, {run.protocol}, seed {run.id.seed}",
    )
    axes.legend()
    return figure


def _title(column: str) -> str:
    """`NDCG@10, test` for `test_ndcg@10`."""
    part, _, metric = column.partition("_")
    return f"{metric.upper()}, {part}" if part in _PARTS else column
