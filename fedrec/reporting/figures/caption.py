"""Captions of figures: content, origin of the numbers, missing lines and the reasons."""

from collections.abc import Iterable, Sequence

from fedrec.config.papers import Artefact
from fedrec.config.protocol import full_name, short_name
from fedrec.reporting.artefact_runs import ArtefactRuns
from fedrec.reporting.diverged import diverged_notes
from fedrec.reporting.figures.figure_data import runs_columns
from fedrec.reporting.provenance import code_text, provenance
from fedrec.reporting.tables.table import Row
from fedrec.runs.record import RunRecord

_PROTOCOLS = {
    "published": "the paper's published protocol, which leaks the held-out item",
    "clean": "the clean protocol",
}


def chart_caption(
    subject: ArtefactRuns, rows: Sequence[Row], shown: str, deviation: str, *, timed: bool = False
) -> str:
    """The caption of a figure of metrics, one statement a line; see `chart.chart`."""
    artefact = subject.artefact
    named = f" ({artefact.paper}, {artefact.name})" if artefact.name else ""
    lines = [f"{artefact.title}{named}.", shown]
    if rows and subject.groups:
        lines.append(_origin(subject, deviation, timed=timed))
    if note := artefact.options.get("note"):
        lines.append(note)
    if missing := _missing(subject):
        lines.append(f"Not shown: {'; '.join(missing)}.")
    lines += diverged_notes(_diverged(subject), "line", "dataset", "protocol")
    return "\n".join(lines) + "\n"


def inside_caption(artefact: Artefact, records: Iterable[RunRecord], *sentences: str) -> str:
    """The caption of a figure of models: content, rounds, and origin of the models."""
    runs = list(records)
    origin = provenance(runs)
    rounds = sorted({run.settings["rounds"] for run in runs})
    parts = [
        f"{artefact.title}.",
        *sentences,
        f"Models after their last round ({', '.join(map(str, rounds))}).",
        str(artefact.options.get("note", "")),
        f"Protocols {', '.join(origin['protocols'])}; seeds {', '.join(origin['seeds'])}; "
        f"splits {', '.join(origin['splits'])}; {code_text(origin['code'])}.",
    ]
    return " ".join(part for part in parts if part)


def under_protocols(artefact: Artefact) -> str:
    """The phrase `under ...` with the protocols of an artefact."""
    names = [short_name(protocol) for protocol in artefact.protocols]
    return "under " + ", and under ".join(_PROTOCOLS.get(name, name) for name in names)


def metrics_of_part(artefact: Artefact, part: str) -> str:
    """`HR@10 and NDCG@10 of the test items`."""
    return f"{' and '.join(metric.upper() for metric in artefact.metrics)} of the {part} items"


def _origin(subject: ArtefactRuns, deviation: str, *, timed: bool) -> str:
    origin = provenance(subject.records)
    several = len(origin["seeds"]) > 1
    bars = f", {deviation} of one standard deviation" if deviation else ""
    mean = f", mean of them{bars}" if several else ""
    devices = f"; measured on {', '.join(origin['devices'])}" if timed else ""
    return (
        f"Seeds {', '.join(origin['seeds'])}{mean}; protocols {', '.join(origin['protocols'])}; "
        f"splits {', '.join(origin['splits'])}; {code_text(origin['code'])}{devices}."
    )


def _diverged(subject: ArtefactRuns) -> list[Row]:
    """The lines whose runs diverged, with dataset and protocol."""
    return [
        {"line": _name(subject, index), "dataset": dataset, "protocol": protocol, **runs_columns(group)}
        for (index, dataset, protocol), group in subject.groups.items()
    ]


def _missing(subject: ArtefactRuns) -> list[str]:
    """Datasets, protocols and single lines without runs."""
    artefact = subject.artefact
    indices = [index for index, line in enumerate(artefact.lines) if line.run is not None]
    missing: list[str] = []
    for dataset in artefact.datasets if indices else ():
        absent = {
            protocol: [index for index in indices if not subject.groups.get((index, dataset, protocol))]
            for protocol in artefact.protocols
        }
        if all(len(gone) == len(indices) for gone in absent.values()):
            missing.append(f"{dataset} ({subject.unavailable.get(dataset, 'not available here')})")
            continue
        for protocol, gone in absent.items():
            if len(gone) == len(indices):
                split = f"{dataset}/{full_name('published', artefact.paper)}"
                reason = subject.unavailable.get(split, "not available here")
                missing.append(f"{dataset}, {short_name(protocol)} ({reason})")
            elif gone:
                names = dict.fromkeys(_name(subject, index) for index in gone)
                missing.append(f"{', '.join(names)} on {dataset}, {short_name(protocol)} (no run)")
    return missing


def _name(subject: ArtefactRuns, index: int) -> str:
    line = subject.artefact.lines[index]
    label, setting = subject.label(line), subject.artefact.options.get("setting")
    return label if setting is None or line.value is None else f"{label} at {setting} {line.value}"
