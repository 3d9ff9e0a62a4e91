"""The tables and the picture of README and docs, made from the measured numbers in docs/numbers.

    python docs/make.py            # fill in the tables, draw the picture
    python docs/make.py --check    # say what is out of date, and change nothing

Numbers of methods on MovieLens 100K that results/reference has runs of are taken from there first.

A table stands between `<!-- table: NAME -->` and `<!-- end of table -->`.
"""

import argparse
import csv
import hashlib
import io
import math
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
NUMBERS = DOCS / "numbers"
PICTURE = DOCS / "pictures/leak.svg"
REFERENCE = ROOT / "results/reference"
PAGES = (ROOT / "README.md", *sorted(DOCS.glob("*.md")))
SIX = {
    "draw-counter": "counting one's own negatives, no model at all",
    "pfedclr": "PFedCLR",
    "fedrap": "FedRAP",
    "fedem": "FedEM",
    "fedmf": "FedMF",
    "popularity": "popularity",
}
Row = dict[str, str]
_PROTOCOLS = ("published", "clean")
_BEFORE_ITS_SEARCH = """\
†: trained before a [search](tuning.md) on validation changed some of its settings; with those both
protocols have not been trained yet."""


def numbers(name: str) -> list[Row]:
    """The rows of one file of numbers."""
    with (NUMBERS / f"{name}.csv").open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def from_reference(rows: Sequence[Row], store: Path = REFERENCE) -> list[Row]:
    """Rows of methods on MovieLens 100K, with the numbers of the stored runs of seed 0 that there are.

    A row is of one setting: where a search has changed it, both protocols are filled in, or none.
    """
    filled_in = []
    for row in rows:
        found, searched = stored_metrics(row, store)
        if searched and len(found) < len(_PROTOCOLS):
            found = {}
        changed = dict(row)
        for protocol, metrics in found.items():
            changed |= {f"{protocol}_{name}": f"{metrics[f'{name}@10']:.4f}" for name in ("hr", "ndcg")}
        filled_in.append(changed)
    return filled_in


def stored_metrics(row: Row, store: Path = REFERENCE) -> tuple[dict[str, dict[str, float]], bool]:
    """By protocol what a store has of a row with today's settings; whether a search found some of these."""
    from fedrec.config.methods import load_methods, resolve
    from fedrec.plan.agreement import has_todays_settings
    from fedrec.plan.runs import run_of
    from fedrec.runs.store import RunStore

    known = load_methods(ROOT / "config/methods.yaml")
    stored = {run.id: run.summary for run in RunStore(store).runs_on("ml-100k").values()}
    paper, method = row["settings_of"].lower() or "pfedclr", row["method"]
    found = {}
    for protocol in _PROTOCOLS:
        said = stored.get(run_of(known, paper, "ml-100k", protocol, method, 0))
        if said is not None and has_todays_settings(said, known):
            found[protocol] = said["metrics"][said["protocol"]["round_rule"]]["test"]
    _, sources, _ = resolve(known, method, paper, "ml-100k")
    return found, any(source.startswith("searched") for source in sources.values())


def is_of_before_its_search(row: Row) -> bool:
    """Whether the numbers of a row were trained with settings that a search has changed since."""
    found, searched = stored_metrics(row)
    return searched and len(found) < len(_PROTOCOLS)


def numbers_text(rows: Sequence[Row]) -> str:
    """The rows of a file of numbers as that file."""
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return stream.getvalue()


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

    table = markdown(
        ("method", "settings of", "printed", "published protocol", "clean protocol"),
        (
            (
                f"`{row['method']}`" + (" †" if is_of_before_its_search(row) else ""),
                row["settings_of"] or "–",
                *(pair(row, which) for which in ("printed", "published", "clean")),
            )
            for row in numbers("ml-100k")
        ),
        right=2,
    )
    return f"{table}\n\n{_BEFORE_ITS_SEARCH}" if "†" in table else table


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
    """Seconds of a round of FedMF by each engine, and how many times the loop takes of the quickest."""

    def cells(machine: str, dataset: str, times: Sequence[str]) -> tuple[str, ...]:
        quickest = min(float(time) for time in times if time)
        ratio = f"{float(times[0]) / quickest:.0f}" if times[0] else "–"
        return (machine, dataset, *(time or "–" for time in times), ratio)

    def thousandth(milliseconds: str) -> str:
        return f"{float(milliseconds) / 1000:.4g}" if milliseconds else ""

    on_gpu = [row for row in numbers("fused-h200") if row["method"] == "fedmf"]
    on_cpu = {row["engine"]: row for row in numbers("engines-cpu") if row["method"] == "fedmf"}
    cpu = on_cpu["fused"]
    return markdown(
        ("machine", "dataset", "`loop`", "`batched`", "`fused`", "ratio"),
        (
            *(
                cells(row["machine"], row["dataset"], (row["loop"], row["batched"], ""))
                for row in numbers("speed")
            ),
            *(
                cells(
                    "H200",
                    f"shape of {row['dataset']}",
                    (row["loop_s"], thousandth(row["batched_ms"]), thousandth(row["round_ms"])),
                )
                for row in on_gpu
            ),
            cells(
                f"{cpu['machine']}, CPU-seconds",
                f"shape of {cpu['dataset']}",
                ("", on_cpu["batched"]["round_cpu_s"], cpu["round_cpu_s"]),
            ),
        ),
        right=2,
    )


def fused() -> str:
    """Milliseconds of a compiled round on a GPU, and those of other engines in the same run."""

    def ratio(row: Row) -> str:
        return f"{float(row['batched_ms']) / float(row['round_ms']):.0f}" if row["batched_ms"] else "–"

    return markdown(
        ("method", "shape of", "`fused`", "kernel alone", "`batched`", "`loop`, s", "`batched` / `fused`"),
        (
            (
                f"`{row['method']}`",
                row["dataset"],
                row["round_ms"],
                *(row[name] or "–" for name in ("kernel_ms", "batched_ms", "loop_s")),
                ratio(row),
            )
            for row in numbers("fused-h200")
        ),
        right=2,
    )


def processes() -> str:
    """Seconds of whole trainings on a GPU, from the command to the files."""
    return markdown(
        ("method", "dataset", "seconds"),
        ((f"`{row['method']}`", row["dataset"], row["seconds"]) for row in numbers("processes-h200")),
        right=2,
    )


def floor() -> str:
    """What a round of FedMF costs by counting, over what a GPU can do by its datasheet, in milliseconds."""

    def cells(row: Row) -> tuple[str, ...]:
        number = {name: float(value) for name, value in row.items() if name != "dataset"}
        drawn = (number["interactions"] - 2 * number["users"]) * number["samples_each"]
        samples = drawn * number["epochs"]
        arithmetic = samples * number["operations"] / number["teraflops"] / 1e9
        least = (drawn * number["row_bytes"] + samples * number["sample_bytes"]) / number[
            "terabytes_a_second"
        ]
        uncached = samples * number["uncached_bytes"] / number["terabytes_a_second"] / 1e9
        times = (arithmetic, least / 1e9, uncached)
        return (
            row["dataset"],
            f"{samples / 1e6:.1f} million",
            *(f"{time:.2f}" for time in times),
            row["kernel_ms"],
        )

    head = (
        "shape of",
        "samples",
        "arithmetic",
        "memory, at least",
        "memory, without caches",
        "kernel, measured",
    )
    return markdown(head, map(cells, numbers("floor")))


def versions() -> str:
    """Versions of the kernel: what was predicted, and what came of it."""
    names = ("version", "predicted", "ml_100k_ms", "ml_1m_ms", "outcome")
    head = ("version", "predicted", "ML-100K, ms", "ML-1M, ms", "outcome")
    return markdown(head, ([row[name] for name in names] for row in numbers("fused-versions")), right=5)


def fused_on_cpu() -> str:
    """Processor seconds of a compiled round on a CPU, before and after its loops were written for vectors."""
    names = ("before_round_s", "before_kernel_s", "round_s", "kernel_s")
    return markdown(
        ("method", "round before", "kernel before", "round", "kernel"),
        ((f"`{row['method']}`", *(row[name] for name in names)) for row in numbers("fused-cpu")),
    )


def cpu_versions() -> str:
    """Versions of the kernel for a CPU, each on top of those above that were taken."""
    names = ("version", "kernel_s", "taken")
    rows = ([row[name] for name in names] for row in numbers("fused-cpu-versions"))
    return markdown(("version", "kernel, s", "taken"), rows, right=3)


def growth() -> str:
    """Microseconds of one interaction by part of the work, and the peak of memory, at each size."""
    head = ("method", "users", "interactions", "split", "draws", "training", "candidates", "peak, GiB")

    def each(row: Row, *parts: str) -> str:
        return f"{1e6 * sum(float(row[part]) for part in parts) / int(row['interactions']):.2f}"

    rows = (
        (
            f"`{row['method']}`",
            f"{int(row['users']):,}",
            f"{int(row['interactions']):,}",
            each(row, "split"),
            each(row, "draws"),
            each(row, "training", "server"),
            each(row, "candidates"),
            f"{int(row['peak_host_bytes']) / 2**30:.1f}",
        )
        for row in numbers("growth-cpu")
    )
    return markdown(head, rows)


def company() -> str:
    """A round that one process or several have done: seconds, memory of each, and what it hands to others."""
    head = (
        "method",
        "processes",
        "processor seconds of each",
        "seconds",
        "memory of each, GiB",
        "handed over, MB",
    )
    rows = (
        (
            f"`{row['method']}`",
            row["processes"],
            f"{float(row['processor_seconds']):.1f}",
            f"{float(row['seconds']):.1f}",
            f"{int(row['peak_bytes']) / 2**30:.2f}",
            f"{int(row['bytes_handed']) / 1e6:.2f}" if row["bytes_handed"] != "0" else "–",
        )
        for row in numbers("company-cpu")
    )
    return markdown(head, rows)


def assumed() -> dict[str, float]:
    """What the tables on paper start from."""
    return {row["name"]: float(row["value"]) for row in numbers("scale")}


def scale() -> str:
    """How many users a GPU holds, and what a round of very many takes, by what a million took on one."""
    given = assumed()
    at_once = given["gpu_bytes"] / given["at_once"]
    head = ("method", "kB a user", "million users on a GPU", "GPUs", "training, s", "candidates, s")

    def cells(row: Row) -> tuple[str, ...]:
        measured = int(row["users"])
        each = (int(row["peak_device_bytes"]) - at_once) / measured
        held = (given["gpu_bytes"] - at_once) / each
        gpus = math.ceil(given["users"] / held)
        times = given["users"] / gpus / measured
        trained = sum(float(row[part]) for part in ("draws", "training", "server"))
        return (
            f"`{row['method']}`",
            f"{each / 1e3:.1f}",
            f"{held / 1e6:.1f}",
            str(gpus),
            f"{trained * times:.0f}",
            f"{float(row['candidates']) * times:.0f}",
        )

    return markdown(head, map(cells, numbers("growth-h200")))


def messages() -> str:
    """What a process sends in a round, and how long that takes at best."""
    given = assumed()
    gpus, table = given["gpus"], given["items"] * given["d"]
    others = (gpus - 1) / gpus
    aggregated, users = given["aggregated"], given["users"]
    sent = {
        "changes of a shared item table, added up": 2 * others * 8 * table,
        "personal aggregates: blocks of tables, there and back": 2 * others * 4 * table * aggregated / gpus,
        "personal aggregates: products of every two tables, added up": 2 * others * 4 * aggregated**2,
        "user vectors, where the server knows them": others * 4 * given["d"] * users,
    }
    collected = {
        "ranks of both held-out items, to the first process": 8 * users * others,
        "a checkpoint of FedMF, to the first process": users
        * others
        * (4 * given["d"] + 2 + given["rounds"]),
    }

    def time(seconds: float) -> str:
        return f"{1e3 * seconds:.2g} ms" if seconds < 0.1 else f"{seconds:.2g} s"

    def amount(count: float) -> str:
        return f"{count / 1e6:.0f} MB" if count < 1e9 else f"{count / 1e9:.1f} GB"

    rows = [
        (what, amount(count), time(count / 1e9 / given["link"]), time(count / 1e9 / given["network"]))
        for what, count in sent.items()
    ]
    slow = [
        (what, amount(count), time(count / 1e9 / given["memory"]), "–") for what, count in collected.items()
    ]
    return markdown(("what", "bytes", "in one machine", "between machines"), [*rows, *slow])


def machines() -> str:
    """How far two machines, engines or repetitions were apart."""

    def share(text: str) -> str:
        return "equal" if float(text) == 0 else f"{100 * float(text):.1f} %"

    rows = (
        [
            row["compared"],
            row["runs"],
            "equal" if float(row["loss"]) == 0 else row["loss"],
            share(row["ranks"]),
            "equal" if float(row["hr"]) == 0 else row["hr"],
        ]
        for row in numbers("machines")
    )
    return markdown(["compared", "runs", "loss, relative", "users with another rank", "HR@10"], rows)


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


def searches() -> str:
    """What every search found that is kept, beside the values from before it."""
    from fedrec.config.methods import load_methods
    from fedrec.config.tuning import load_tuning

    known = load_tuning(ROOT / "config/tuning.yaml", load_methods(ROOT / "config/methods.yaml")).searches
    return markdown(
        ("search", "found", "before", "trials", "NDCG@10 found", "before", "trials within 5 %"),
        (
            (f"`{search.key}`", *_found(list(rows), [one.setting for one in search.ranges]))
            for search in known.values()
            if (rows := kept_trials(search.target))
        ),
        right=3,
    )


def kept_trials(target: str) -> list[Row]:
    """The trials of a search whose table is kept; none of another."""
    from fedrec.reporting.kept import kept_targets, kept_text

    if target not in kept_targets(REFERENCE):
        return []
    return list(csv.DictReader(kept_text(REFERENCE, target, ".csv").splitlines()))


def _found(trials: Sequence[Row], settings: Sequence[str]) -> tuple[str, ...]:
    (best,) = (trial for trial in trials if trial["chosen"] == "True")
    (before,) = (trial for trial in trials if trial["trial"] == "0")
    near = sum(float(trial["ndcg@10"]) >= 0.95 * float(best["ndcg@10"]) for trial in trials)
    values = (", ".join(f"{name} {trial[name]}" for name in settings) for trial in (best, before))
    gains = (f"{float(trial['ndcg@10']):.3f}" for trial in (best, before))
    return *values, str(len(trials)), *gains, str(near)


def shared() -> str:
    """Seconds of lists of runs on one GPU, by how their processes use it."""
    return markdown(
        ("runs of 100 rounds", "processes", "how they use the GPU", "seconds"),
        ((row["runs"], row["processes"], row["use"], row["seconds"]) for row in numbers("shared-h200")),
        right=3,
    )


def since() -> str:
    """Milliseconds of rounds after what the page tells, beside those from before."""
    return markdown(
        ("method", "shape of", "before", "now"),
        (
            (f"`{row['method']}`", row["dataset"], row["before_ms"], row["round_ms"])
            for row in numbers("fused-since")
        ),
        right=2,
    )


def products() -> str:
    """Versions of a kernel with products: what was predicted, and what came of it."""
    names = ("version", "predicted", "round_ms", "outcome")
    head = ("version", "predicted", "round, ms", "outcome")
    return markdown(head, ([row[name] for name in names] for row in numbers("plgc-versions")), right=4)


def epochs() -> str:
    """Seconds of an epoch of centralised methods, step by step and as one compiled loop."""
    return markdown(
        ("machine", "dataset", "method", "step by step", "compiled"),
        (
            (row["machine"], row["dataset"], f"`{row['method']}`", row["steps_s"], row["compiled_s"])
            for row in numbers("epochs")
        ),
        right=2,
    )


TABLES: dict[str, Callable[[], str]] = {
    "six lines": six_lines,
    "methods": methods,
    "protocols": protocols,
    "speed": speed,
    "fused": fused,
    "processes": processes,
    "shared": shared,
    "since": since,
    "products": products,
    "epochs": epochs,
    "floor": floor,
    "versions": versions,
    "fused on cpu": fused_on_cpu,
    "cpu versions": cpu_versions,
    "growth": growth,
    "company": company,
    "scale": scale,
    "messages": messages,
    "machines": machines,
    "datasets": datasets,
    "searches": searches,
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
    from fedrec.config.methods import load_methods, resolve, title
    from fedrec.reporting.figures.slope import Slope, slope_figure
    from fedrec.reporting.figures.style import theme
    from fedrec.reporting.figures.vector import svg_of
    from fedrec.runs.kinds import kind_of

    known = load_methods(ROOT / "config/methods.yaml")
    slopes = [
        Slope(
            "draw-counter (no model)" if name == "draw-counter" else title(known, name),
            kind_of(known, name, resolve(known, name, None, "ml-100k")[0]),
            float(row["published_hr"]),
            float(row["clean_hr"]),
            dashed=name == "popularity",
            bold=name == "draw-counter",
        )
        for row in numbers("ml-100k")
        for name in [row["method"]]
    ]
    with theme():
        picture = svg_of(slope_figure(slopes, 0.1, "HR@10 on MovieLens 100K, one seed, 100 rounds"))
    PICTURE.parent.mkdir(exist_ok=True)
    PICTURE.write_text(f"{picture.rstrip()}\n<!-- {origin()} -->\n", encoding="utf-8")


def outdated() -> list[str]:
    """What differs from what the numbers give."""
    pages = [
        page.relative_to(ROOT).as_posix() for page in PAGES if filled(text := page.read_text("utf-8")) != text
    ]
    fresh = PICTURE.is_file() and origin() in PICTURE.read_text("utf-8")
    measured = numbers("ml-100k")
    stale = [] if from_reference(measured) == measured else ["docs/numbers/ml-100k.csv"]
    return [*stale, *pages, *([] if fresh else [PICTURE.relative_to(ROOT).as_posix()])]


def main() -> None:
    """Make, or check."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args().check:
        stale = outdated()
        print("\n".join(f"{name}: out of date; run python docs/make.py" for name in stale) or "up to date")
        sys.exit(bool(stale))
    text = numbers_text(from_reference(numbers("ml-100k")))
    (NUMBERS / "ml-100k.csv").write_text(text, encoding="utf-8")
    for page in PAGES:
        page.write_text(filled(page.read_text("utf-8")), encoding="utf-8")
    draw()


if __name__ == "__main__":
    main()
