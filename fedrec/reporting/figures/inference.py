"""Scores with different item tables: the user's own, the server's, and another user's."""

import numpy as np

from fedrec.config.protocol import short_name
from fedrec.plan.layouts import Layout
from fedrec.plan.project import Project
from fedrec.plan.targets import Target
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.figures.caption import inside_caption
from fedrec.reporting.figures.chart import Drawn, build_inside
from fedrec.reporting.figures.panels import COLOURS, datasets_and_protocols, panel_grid
from fedrec.reporting.provenance import mean_over_seeds
from fedrec.reporting.tables.table import Row
from fedrec.runs.model_inspection import WAYS, ModelInspection, scored_with
from fedrec.runs.provenance_columns import folders_of

LAYOUT = Layout("figure", needs=("runs", "states", "splits", "models"))


def build(target: Target, project: Project) -> None:
    """Draw the bars of an artefact."""
    build_inside(target, project, draw)


def draw(subject: ArtefactRuns) -> Drawn:
    """Draw a row of panels per protocol, a column per metric: bars for each item table, by dataset."""
    artefact, groups = subject.artefact, subject.groups
    protocols = list(dict.fromkeys(name for _, name in datasets_and_protocols(artefact, groups)))
    figure, axes = panel_grid(len(protocols), len(artefact.metrics), 2.9, 2.0)
    rows: list[Row] = []
    for across, protocol in zip(axes, protocols, strict=True):
        there = [(index, dataset) for index, dataset, other in groups if other == protocol]
        measured = {
            key: [
                {way: scored_with(ModelInspection(run), way) for way in WAYS}
                for run in groups[*key, protocol]
            ]
            for key in there
        }
        for panel, metric in zip(across, artefact.metrics, strict=True):
            for number, way in enumerate(WAYS):
                values = [mean_over_seeds(metrics[way][metric] for metrics in measured[key]) for key in there]
                panel.bar(
                    np.arange(len(there)) + 0.27 * (number - 1), [value.mean for value in values], 0.25,
                    yerr=[value.sd or 0.0 for value in values] if any(v.sd for v in values) else None,
                    color=COLOURS[number], label=way, error_kw={"linewidth": 0.8},
                )  # fmt: skip
                rows += [
                    {
                        "line": subject.label(artefact.lines[index]), "dataset": dataset,
                        "protocol": protocol, "metric": metric, "table": way, "mean": value.mean,
                        "sd": value.sd, "seeds": value.count,
                        "runs": folders_of(groups[index, dataset, protocol]),
                    }
                    for (index, dataset), value in zip(there, values, strict=True)
                ]  # fmt: skip
            panel.set_xticks(range(len(there)), [dataset for _, dataset in there])
            panel.set_ylabel(f"{metric.upper()}, {short_name(protocol)}")
    handles, names = axes[0][0].get_legend_handles_labels()
    figure.legend(handles, names, title="item table", loc="outside lower center", ncols=3, frameon=False)
    shown = (
        "Test metrics of the same models, scored with the user's own item table, the server's, and that of "
        "another random user."
    )
    return figure, rows, inside_caption(artefact, subject.records, shown)
