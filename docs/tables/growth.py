"""Tables of growth: measured, and on paper for more users than one machine holds."""

import math

from docs.tables.numbers import Row, markdown, numbers


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


def distributed() -> str:
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
        for row in numbers("distributed-cpu")
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
