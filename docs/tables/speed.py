"""Tables of the time of rounds, epochs and runs."""

from collections.abc import Sequence

from docs.tables.numbers import Row, markdown, numbers


def speed() -> str:
    """Seconds of a round of FedMF by engine, and the ratio of the loop to the fastest."""

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
        ("machine", "dataset", "`loop`, s", "`batched`, s", "`fused`, s", "ratio"),
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
    """Milliseconds of a compiled round on a GPU, and of other engines in the same run."""

    def ratio(row: Row) -> str:
        return f"{float(row['batched_ms']) / float(row['round_ms']):.0f}" if row["batched_ms"] else "–"

    return markdown(
        (
            "method",
            "shape of",
            "`fused`, ms",
            "kernel alone, ms",
            "`batched`, ms",
            "`loop`, s",
            "`batched` / `fused`",
        ),
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


def rounds() -> str:
    """Milliseconds of a compiled round with all clients on a GPU."""
    rows = ((f"`{row['method']}`", row["dataset"], row["round_ms"]) for row in numbers("fused-since"))
    return markdown(("method", "shape of", "round, ms"), rows, right=2)


def rounds_on_cpu() -> str:
    """CPU-seconds of a compiled round, and of its kernel."""
    rows = ((f"`{row['method']}`", row["round_s"], row["kernel_s"]) for row in numbers("fused-cpu"))
    return markdown(("method", "round, CPU-seconds", "kernel alone, CPU-seconds"), rows)


def since() -> str:
    """Milliseconds of a compiled round before and after blocks of samples, on a GPU."""
    return markdown(
        ("method", "shape of", "before, ms", "after, ms"),
        (
            (f"`{row['method']}`", row["dataset"], row["before_ms"], row["round_ms"])
            for row in numbers("fused-since")
        ),
        right=2,
    )


def versions() -> str:
    """Versions of the kernel, with predicted and measured times."""
    names = ("version", "predicted", "ml_100k_ms", "ml_1m_ms", "outcome")
    head = ("version", "predicted", "ML-100K, ms", "ML-1M, ms", "outcome")
    return markdown(head, ([row[name] for name in names] for row in numbers("fused-versions")), right=5)


def products() -> str:
    """Versions of a kernel with products, with predicted and measured times."""
    names = ("version", "predicted", "round_ms", "outcome")
    head = ("version", "predicted", "round, ms", "outcome")
    return markdown(head, ([row[name] for name in names] for row in numbers("plgc-versions")), right=4)


def floor() -> str:
    """The least milliseconds of a round of FedMF, from counted work and the datasheet of a GPU."""

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
        "arithmetic, ms",
        "memory at least, ms",
        "memory without caches, ms",
        "kernel as measured, ms",
    )
    return markdown(head, map(cells, numbers("floor")))


def processes() -> str:
    """Seconds of whole trainings on a GPU, from the command to the written files."""
    return markdown(
        ("method", "dataset", "importing torch, s", "whole training, s"),
        (
            (f"`{row['method']}`", row["dataset"], row["torch"], row["seconds"])
            for row in numbers("processes-h200")
        ),
        right=2,
    )


def authors() -> str:
    """Seconds of a round of the authors' code, milliseconds of ours in the same run, and the ratio."""

    def ratio(row: Row) -> str:
        return f"{1000 * float(row['theirs_s']) / float(row['ours_ms']):,.0f}"

    return markdown(
        ("method", "dataset", "rounds of theirs", "theirs, s a round", "ours, ms a round", "ratio"),
        (
            (f"`{row['method']}`", row["dataset"], row["rounds"], row["theirs_s"], row["ours_ms"], ratio(row))
            for row in numbers("authors-h200")
        ),
        right=2,
    )


def shared() -> str:
    """Seconds of run lists on one GPU, by the way in which processes share it."""
    return markdown(
        ("runs of 100 rounds", "processes", "use of the GPU", "seconds"),
        ((row["runs"], row["processes"], row["use"], row["seconds"]) for row in numbers("shared-h200")),
        right=3,
    )


def epochs() -> str:
    """Seconds of an epoch of centralised methods, step by step and as one compiled loop."""
    return markdown(
        ("machine", "dataset", "method", "step by step, s", "compiled, s"),
        (
            (row["machine"], row["dataset"], f"`{row['method']}`", row["steps_s"], row["compiled_s"])
            for row in numbers("epochs")
        ),
        right=2,
    )


def fused_on_cpu() -> str:
    """CPU-seconds of a compiled round, before and after its loops were vectorised."""
    names = ("before_round_s", "before_kernel_s", "round_s", "kernel_s")
    return markdown(
        ("method", "round before, s", "kernel before, s", "round after, s", "kernel after, s"),
        ((f"`{row['method']}`", *(row[name] for name in names)) for row in numbers("fused-cpu")),
    )


def cpu_versions() -> str:
    """Versions of the CPU kernel, each on top of the adopted ones above."""
    names = ("version", "kernel_s", "taken")
    rows = ([row[name] for name in names] for row in numbers("fused-cpu-versions"))
    return markdown(("version", "kernel, s", "taken"), rows, right=3)


def machines() -> str:
    """The differences between two machines, engines or repetitions."""

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
    return markdown(
        [
            "compared",
            "runs",
            "relative difference of the loss",
            "users with another rank",
            "difference of HR@10",
        ],
        rows,
    )
