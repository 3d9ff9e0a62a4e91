"""The tables and the picture of README and docs, made from the measured numbers in docs/numbers.

    python docs/make.py            # fill in the tables, draw the picture
    python docs/make.py --check    # say what is out of date, and change nothing

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

import argparse
import csv
import hashlib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
NUMBERS = DOCS / "numbers"
PICTURE = DOCS / "pictures/leak.svg"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
SIX = {
    "draw-counter": "counting one's own negatives, no model at all",
    "pfedclr": "PFedCLR",
    "fedrap": "FedRAP",
    "fedem": "FedEM",
    "fedmf": "FedMF",
    "popularity": "popularity",
}
LEAKY = ("draw-counter", "local-only", "pfedclr", "fedrap", "fedem", "fedmf+plgc")
"""Methods whose clients remember their own draws."""
Row = dict[str, str]


def numbers(name: str) -> list[Row]:
    """The rows of one file of numbers."""
    with (NUMBERS / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]], right: int = 1) -> str:
    """A table whose columns from `right` on are aligned to the right."""
    rule = ["---"] * right + ["---:"] * (len(head) - right)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, rule, *rows))


def six_lines() -> str:
    """HR@10 of six methods in print and under both protocols."""
    rows = {row["method"]: row for row in numbers("ml-100k")}
    return markdown(
        ("MovieLens 100K, HR@10", "printed", "published protocol", "clean protocol"),
        (
            (label, rows[name]["printed_hr"] or "–", rows[name]["published_hr"], rows[name]["clean_hr"])
            for name, label in SIX.items()
        ),
    )


def methods() -> str:
    """Every method with the settings of its paper: HR@10 and NDCG@10."""

    def pair(row: Row, protocol: str) -> str:
        hit, gain = row[f"{protocol}_hr"], row[f"{protocol}_ndcg"]
        return f"{hit} / {gain}" if hit else "–"

    return markdown(
        ("method", "settings of", "printed", "published protocol", "clean protocol"),
        (
            (
                f"`{row['method']}`",
                row["settings_of"] or "–",
                *(pair(row, which) for which in ("printed", "published", "clean")),
            )
            for row in numbers("ml-100k")
        ),
        right=2,
    )


def protocols() -> str:
    """HR@10 of every method under three protocols, and its rank, on two datasets."""
    rows = {(row["dataset"], row["method"]): row for row in numbers("audit_protocols")}
    datasets = list(dict.fromkeys(dataset for dataset, _ in rows))
    steps = ("published", "only_pool", "clean")

    def ranked(dataset: str, method: str, step: str) -> str:
        value = float(rows[dataset, method][step])
        others = (float(row[step]) for (where, _), row in rows.items() if where == dataset)
        return f"{rows[dataset, method][step]} ({1 + sum(other > value for other in others)})"

    names = {"ml-100k": "ML-100K", "filmtrust": "FilmTrust"}
    head = [f"{names[dataset]} {step.replace('_', ' ')}" for dataset in datasets for step in steps]
    order = sorted(
        dict.fromkeys(method for _, method in rows),
        key=lambda method: -float(rows[datasets[0], method]["clean"]),
    )
    return markdown(
        ("method", *head),
        (
            (method, *(ranked(dataset, method, step) for dataset in datasets for step in steps))
            for method in order
        ),
    )


def speed() -> str:
    """Seconds of a round, and their ratio."""
    return markdown(
        ("machine", "dataset", "`loop`", "`batched`", "ratio"),
        (
            (
                row["machine"],
                row["dataset"],
                row["loop"],
                row["batched"],
                f"{float(row['loop']) / float(row['batched']):.0f}",
            )
            for row in numbers("speed")
        ),
        right=2,
    )


def datasets() -> str:
    """The size of every whole dataset."""
    about = {row["dataset"]: row for row in numbers("datasets_about")}

    def count(row: Row, name: str) -> str:
        return f"{int(row[name]):,}" + (" (printed)" if row["source"] == "printed" else "")

    return markdown(
        ("name", "users", "items", "interactions", "used by", "licence"),
        (
            (
                f"`{row['dataset']}`" + (f" ({note})" if (note := about[row["dataset"]]["note"]) else ""),
                *(count(row, name) for name in ("users", "items", "interactions")),
                about[row["dataset"]]["used_by"],
                about[row["dataset"]]["licence"],
            )
            for row in numbers("datasets")
        ),
    )


TABLES: dict[str, Callable[[], str]] = {
    "six lines": six_lines,
    "methods": methods,
    "protocols": protocols,
    "speed": speed,
    "datasets": datasets,
}


def filled(text: str) -> str:
    """A page with its tables made anew."""

    def table(found: re.Match[str]) -> str:
        return f"<!-- table: {found['name']} -->\n\n{TABLES[found['name']]()}\n\n<!-- end of table -->"

    pattern = r"<!-- table: (?P<name>[a-z ]+) -->.*?<!-- end of table -->"
    return re.sub(pattern, table, text, flags=re.DOTALL)


def origin() -> str:
    """Names the numbers that the picture shows."""
    return "sha256 " + hashlib.sha256((NUMBERS / "ml-100k.csv").read_bytes()).hexdigest()


def draw() -> None:
    """The slopes of all methods from the published to the clean protocol."""
    import matplotlib as mpl

    mpl.use("svg")
    from matplotlib import pyplot as plt

    mpl.rcParams |= {"svg.hashsalt": "fedrec", "svg.fonttype": "none", "font.family": "sans-serif"}
    figure, axes = plt.subplots(figsize=(8.4, 7.4))
    red, blue, grey = "#b3261e", "#1f5fa8", "#9aa0a6"
    ends: list[tuple[float, str, str]] = []
    starts: list[tuple[float, str, str]] = []
    for row in numbers("ml-100k"):
        name, values = row["method"], [float(row["published_hr"]), float(row["clean_hr"])]
        colour = red if name in LEAKY else blue if name == "popularity" else grey
        axes.plot(
            [0, 1], values, color=colour, linewidth=2.2 if colour != grey else 1.2, marker="o", markersize=4
        )
        starts.append((values[0], name, colour))
        ends.append((values[1], name, colour))
    for side, labels, align in ((-0.03, starts, "right"), (1.03, ends, "left")):
        for place, (value, name, colour) in apart(labels):
            axes.text(side, place, f"{name}  {value:.2f}", ha=align, va="center", fontsize=8.5, color=colour)
    axes.axhline(0.1, color="black", linewidth=0.8, linestyle=":")
    axes.text(0.5, 0.112, "chance", ha="center", fontsize=8.5)
    axes.set(xlim=(-0.42, 1.42), ylim=(0.0, 1.06), xticks=[0, 1], yticks=[])
    axes.set_xticklabels(["published protocol", "clean protocol"], fontsize=11)
    axes.set_title("HR@10 on MovieLens 100K, one seed, 100 rounds", fontsize=11, loc="left")
    for side in axes.spines.values():
        side.set_visible(False)
    axes.tick_params(length=0)
    figure.tight_layout()
    PICTURE.parent.mkdir(exist_ok=True)
    figure.savefig(PICTURE, metadata={"Date": None, "Description": origin()})
    plt.close(figure)


def apart(
    labels: list[tuple[float, str, str]], gap: float = 0.0235
) -> list[tuple[float, tuple[float, str, str]]]:
    """Places for labels that do not overlap, from the top: at their value or just below the one above."""
    places = []
    last = 2.0
    for label in sorted(labels, reverse=True):
        last = min(label[0], last - gap)
        places.append([last, label])
    # What was pushed below the axis moves everything above it up again.
    floor = 0.02
    for place in reversed(places):
        place[0] = max(place[0], floor)
        floor = place[0] + gap
    return [(place, label) for place, label in places]


def outdated() -> list[str]:
    """What differs from what the numbers give."""
    pages = [
        page.relative_to(ROOT).as_posix() for page in PAGES if filled(text := page.read_text("utf-8")) != text
    ]
    fresh = PICTURE.is_file() and origin() in PICTURE.read_text("utf-8")
    return [*pages, *([] if fresh else [PICTURE.relative_to(ROOT).as_posix()])]


def main() -> None:
    """Make, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        stale = outdated()
        print("\n".join(f"{name}: out of date; run python docs/make.py" for name in stale) or "up to date")
        sys.exit(bool(stale))
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), encoding="utf-8")
    draw()


if __name__ == "__main__":
    main()
