"""What captions say: what is shown, how the numbers came about, what is missing and why."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from fedrec.config.papers import Artefact
from fedrec.reporting.plotted import EXTRA_SPACE, GROUPS, Found, kinds_of, label_of, part_of
from fedrec.reporting.results import Result, provenance
from fedrec.reporting.tables import Row

_KINDS = {
    "published": "the paper's published protocol, which leaks the held-out item",
    "clean": "the clean protocol",
}


def caption(
    artefact: Artefact,
    rows: Sequence[Row],
    found: Found,
    methods: Mapping[str, Any],
    unavailable: Mapping[str, str],
) -> str:
    """The caption of a figure, one statement a line.

    `unavailable` tells why a dataset, or the split of one (`dataset/protocol`), cannot be had.
    """
    lines = [f"{artefact.title} ({artefact.paper}, {artefact.name}).", _shown(artefact, rows)]
    if rows and found:
        lines += [_measured(artefact, found)]
    if note := artefact.options.get("note"):
        lines.append(note)
    if missing := _missing(artefact, found, methods, unavailable):
        lines.append(f"Left out: {'; '.join(missing)}.")
    return "\n".join(lines) + "\n"


def table_caption(artefact: Artefact, results: Sequence[Result]) -> str:
    """What stands above a table: name and title, and protocols, seeds and hashes of the runs behind it."""
    said = f"{artefact.title} ({artefact.paper}, {artefact.name})."
    if not results:
        return said
    about = provenance(results)
    return (
        f"{said} Numbers at the round each protocol reports: published is {_KINDS['published']}, clean the "
        f"honest one. Seeds {', '.join(about['seeds'])}; protocols {', '.join(about['protocols'])}; splits "
        f"{', '.join(about['splits'])}; code {', '.join(about['code'])}."
    )


def metric_title(metric: str) -> str:
    """`HR@10` for `hr@10`."""
    return metric.upper()


def own_title(rows: Sequence[Row]) -> str | None:
    """What the marked values of a sweep are, if there are any."""
    sources = {row["own"] for row in rows} - {"no"}
    if not sources:
        return None
    return "our value, since the paper gives none" if "ours" in sources else "the paper's own value"


def space_title(rows: Sequence[Row]) -> str:
    """What the extra space of a sweep is."""
    return f"space of a client beyond {rows[0]['over']} (right axis)"


def _shown(artefact: Artefact, rows: Sequence[Row]) -> str:
    metrics = " and ".join(map(metric_title, artefact.metrics))
    part, setting = part_of(artefact), artefact.options.get("setting")
    under = "under " + ", and under ".join(_KINDS.get(kind, kind) for kind in kinds_of(artefact))
    if artefact.layout == "convergence":
        rounds = Counter((row["method"], row["dataset"], row["protocol"], row["metric"]) for row in rows)
        once = 1 in rounds.values()
        level = " What is trained in one round is a level line." if once else ""
        return f"{metrics} of the {part} items after each round, {under}.{level}"
    if artefact.layout == "sweep":
        marked = own_title(rows)
        rings = f" A ring marks {marked}." if marked else ""
        spaces = [row for row in rows if row["metric"] == EXTRA_SPACE]
        if spaces:
            rings += f" Dashed: {space_title(spaces)}, 4 bytes a number, MB of 2^20 bytes."
        if part == "validation":
            return (
                f"{metrics} of the validation items at their best round, by {setting}, {under}; small "
                f"numbers are that round.{rings}"
            )
        return (
            f"{metrics} of the test items at the round each protocol reports, by {setting}, {under}.{rings}"
        )
    if artefact.layout == "bars":
        return f"{metrics} of the test items at the round each protocol reports, in percent, {under}."
    if artefact.layout == "groups":
        return (
            f"{metrics} of the test items at the round each protocol reports, by {setting}, {under}, for "
            f"{GROUPS} groups of users of equal size by their training rows; a ring marks a group's best.\n"
            f"{_group_sizes(rows)}"
        )
    if artefact.layout == "bubbles":
        return (
            f"Space of the parameters of one client and of the server (4 bytes a number, MB of 2^20 bytes); "
            f"the area of a bubble is the median seconds of a round, {under}."
        )
    return (
        "The strength of FedRAP's penalties in each round for v = 0.1, as its paper writes the curricula and "
        "as its official code does. Computed by the method itself; no training."
    )


def _group_sizes(rows: Sequence[Row]) -> str:
    """How many training rows the users of each group have."""
    sizes: dict[str, dict[int, str]] = {}
    for row in rows:
        where = sizes.setdefault(f"{row['dataset']}, {row['protocol']}", {})
        where[row["group"]] = f"{row['least_rows']}–{row['most_rows']}"
    texts = [f"{where}: {', '.join(by_group.values())}" for where, by_group in sizes.items()]
    return f"Training rows of the users of groups 1 to {GROUPS}: {'; '.join(texts)}."


def _measured(artefact: Artefact, found: Found) -> str:
    results = [one for group in found.values() for one in group]
    about = provenance(results)
    several = len(about["seeds"]) > 1
    band = "band" if artefact.layout == "convergence" else "bar"
    over = f", mean of them, {band} of one standard deviation" if several else ""
    over = ", mean of them" if several and artefact.layout == "bubbles" else over
    text = (
        f"Seeds {', '.join(about['seeds'])}{over}; protocols {', '.join(about['protocols'])}; "
        f"splits {', '.join(about['splits'])}; code {', '.join(about['code'])}"
    )
    return text + (f"; measured on {', '.join(about['devices'])}." if artefact.layout == "bubbles" else ".")


def _missing(
    artefact: Artefact, found: Found, methods: Mapping[str, Any], unavailable: Mapping[str, str]
) -> list[str]:
    """Datasets, protocols of one, and single lines that there is no result of."""
    places = [place for place, line in enumerate(artefact.lines) if line.run is not None]
    kinds = kinds_of(artefact)
    told: list[str] = []
    for dataset in artefact.datasets if places else ():
        absent = {
            kind: [place for place in places if not found.get((place, dataset, kind))] for kind in kinds
        }
        reason = unavailable.get(dataset, "not available here")
        if all(len(gone) == len(places) for gone in absent.values()):
            told.append(f"{dataset} ({reason})")
            continue
        for kind, gone in absent.items():
            if len(gone) == len(places):
                reason = unavailable.get(f"{dataset}/published-{artefact.paper}", "not available here")
                told.append(f"{dataset}, {kind} ({reason})")
            elif gone:
                names = dict.fromkeys(_named(artefact, place, methods) for place in gone)
                told.append(f"{', '.join(names)} on {dataset}, {kind} (no run)")
    return told


def _named(artefact: Artefact, place: int, methods: Mapping[str, Any]) -> str:
    line = artefact.lines[place]
    label = label_of(artefact, line, methods)
    setting = artefact.options.get("setting")
    return label if setting is None else f"{label} at {setting} {line.value}"
