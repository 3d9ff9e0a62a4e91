"""Tables of growth: measured, and computed for more users than one machine can hold."""

import math

from docs.tables.numbers import Row, markdown, numbers


def growth() -> str:
    """Microseconds per interaction by part of the work, and peak memory, at each size."""
    head = (
        "method",
        "users",
        "interactions",
        "split, µs",
        "negative sampling, µs",
        "training, µs",
        "ranks of candidates, µs",
        "peak memory, GiB",
    )

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


def distributed() -> str:
    """A round in one or several processes: seconds, memory per process, and bytes sent."""
    head = (
        "method",
        "processes",
        "CPU-seconds per process",
        "wall time, s",
        "memory per process, GiB",
        "sent, MB",
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
        for row in numbers("distributed-cpu")
    )
    return markdown(head, rows)


def assumed() -> dict[str, float]:
    """The assumptions of the computed tables."""
    return {row["name"]: float(row["value"]) for row in numbers("scale")}


def scale() -> str:
    """The users that fit a GPU, and the seconds of a round, extrapolated from a million users on one."""
    given = assumed()
    at_once = given["gpu_bytes"] / given["at_once"]
    head = ("method", "kB per user", "million users per GPU", "GPUs", "training, s", "ranks of candidates, s")

    def cells(row: Row) -> tuple[str, ...]:
        measured = int(row["users"])
        per_user = (int(row["peak_device_bytes"]) - at_once) / measured
        held = (given["gpu_bytes"] - at_once) / per_user
        gpus = math.ceil(given["users"] / held)
        times = given["users"] / gpus / measured
        trained = sum(float(row[part]) for part in ("draws", "training", "server"))
        return (
            f"`{row['method']}`",
            f"{per_user / 1e3:.1f}",
            f"{held / 1e6:.1f}",
            str(gpus),
            f"{trained * times:.0f}",
            f"{float(row['candidates']) * times:.0f}",
        )

    return markdown(head, map(cells, numbers("growth-h200")))


def messages() -> str:
    """Bytes that a process sends in a round, and the least time for them."""
    given = assumed()
    gpus, table = given["gpus"], given["items"] * given["d"]
    others = (gpus - 1) / gpus
    aggregated, users = given["aggregated"], given["users"]
    sent = {
        "changes of a shared item table, all-reduce": 2 * others * 8 * table,
        "personal aggregates: blocks of tables, there and back": 2 * others * 4 * table * aggregated / gpus,
        "personal aggregates: products of every two tables, all-reduce": 2 * others * 4 * aggregated**2,
        "user vectors that the server knows, all-gather": others * 4 * given["d"] * users,
    }
    collected = {
        "ranks of both held-out items, sent to the first process": 8 * users * others,
        "a checkpoint of FedMF, sent to the first process": users
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
    return markdown(("message", "bytes", "in one machine", "between machines"), [*rows, *slow])
