"""Fill in the tables and draw the picture of README and docs, from docs/numbers and results/reference.

    python -m docs.make            # fill in the tables, draw the picture
    python -m docs.make --check    # list outdated files, and change nothing

A table lies between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

import argparse
import hashlib
import re
import sys
from collections.abc import Callable
from functools import cache

from docs.tables import exact, growth, noise, objections, passes, results, searches, speed
from docs.tables.numbers import DOCS, NUMBERS, REFERENCE, ROOT, numbers, numbers_text
from fedrec.config.methods import load_methods
from fedrec.config.papers import BOTH
from fedrec.config.protocol import short_name
from fedrec.config.protocol_file import load_protocols
from fedrec.plan.reference import is_as_named
from fedrec.reporting.figures.style import theme
from fedrec.reporting.figures.svg import svg_of
from fedrec.reporting.front_figure import Front, front_figure, front_of
from fedrec.runs.store import PackedRecord, RunStore

DATASET, PAPER = "ml-100k", "pfedclr"
"""The dataset of the front figure, and the paper whose settings replace missing ones there."""
PICTURE = DOCS / "pictures/leak.svg"
PAGES = (ROOT / "README.md", *sorted(DOCS.rglob("*.md")))
TABLES: dict[str, Callable[[], str]] = {
    "six lines": results.six_lines,
    "claims": results.claims,
    "methods": results.methods,
    "baselines": results.baselines,
    "protocols": results.protocols,
    "switches": results.switches,
    "speed": speed.speed,
    "fused": speed.fused,
    "processes": speed.processes,
    "authors": speed.authors,
    "clusters": results.clusters,
    "orders": results.orders,
    "cuts": results.cuts,
    "shared": speed.shared,
    "rounds": speed.rounds,
    "rounds on cpu": speed.rounds_on_cpu,
    "since": speed.since,
    "products": speed.products,
    "epochs": speed.epochs,
    "floor": speed.floor,
    "versions": speed.versions,
    "fused on cpu": speed.fused_on_cpu,
    "cpu versions": speed.cpu_versions,
    "growth": growth.growth,
    "distributed": growth.distributed,
    "scale": growth.scale,
    "messages": growth.messages,
    "machines": speed.machines,
    "datasets": results.datasets,
    "searches": searches.searches,
    "alike": searches.alike,
    "searched alike": searches.searched_alike,
    "noise": noise.noise,
    "goes": results.goes,
    "trained again": results.trained_again,
    "exact": exact.exact,
    "beta": objections.beta,
    "both ranks": objections.both_ranks,
    "candidate draws": objections.candidate_draws,
    "passes of fedmf": passes.of_fedmf,
}


def filled(text: str) -> str:
    """A page with new tables."""

    def table(match: re.Match[str]) -> str:
        return f"<!-- table: {match['name']} -->\n\n{TABLES[match['name']]()}\n\n<!-- end of table -->"

    pattern = r"<!-- table: (?P<name>[a-z ]+) -->.*?<!-- end of table -->"
    return re.sub(pattern, table, text, flags=re.DOTALL)


@cache
def front() -> Front:
    """The front figure's content: the stored runs of the methods on MovieLens 100K."""
    methods = load_methods(ROOT / "config/methods.yaml")
    protocols = load_protocols(ROOT / "config/protocols.yaml")
    store = RunStore(REFERENCE)
    records = [
        PackedRecord(REFERENCE / run.name, packed=run)
        for run in store.runs_on(DATASET).values()
        if short_name(run.id.protocol) in BOTH and is_as_named(run.summary, methods, protocols)
    ]
    figure = front_of(records, methods, [row["method"] for row in numbers("ml-100k")], DATASET, PAPER)
    assert figure is not None, "the reference has runs"
    return figure


def origin() -> str:
    """The hash of the numbers in the picture."""
    shown = [(score.method, score.protocol, f"{score.value:.4f}", score.runs) for score in front().scores]
    return "sha256 " + hashlib.sha256(repr((shown, front().settings)).encode()).hexdigest()


def draw() -> None:
    """Draw the front figure like the page of results."""
    with theme():
        picture = svg_of(front_figure(front()))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(f"{picture.rstrip()}\n<!-- {origin()} -->\n", encoding="utf-8")


def outdated() -> list[str]:
    """The files that differ from their numbers."""
    pages = [
        page.relative_to(ROOT).as_posix() for page in PAGES if filled(text := page.read_text("utf-8")) != text
    ]
    fresh = PICTURE.is_file() and origin() in PICTURE.read_text("utf-8")
    measured = numbers("ml-100k")
    stale = [] if results.from_reference(measured) == measured else ["docs/numbers/ml-100k.csv"]
    stale += [] if numbers("exact") == [*exact.from_store()] else ["docs/numbers/exact.csv"]
    return [*stale, *pages, *([] if fresh else [PICTURE.relative_to(ROOT).as_posix()])]


def main() -> None:
    """Write all files, or check them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        stale = outdated()
        print("\n".join(f"{name}: out of date; run python -m docs.make" for name in stale) or "up to date")
        sys.exit(bool(stale))
    text = numbers_text(results.from_reference(numbers("ml-100k")))
    (NUMBERS / "ml-100k.csv").write_text(text, encoding="utf-8")
    (NUMBERS / "exact.csv").write_text(numbers_text(exact.from_store()), encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), encoding="utf-8")
    draw()


if __name__ == "__main__":
    main()
