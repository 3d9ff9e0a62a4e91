"""The runs that targets have trained, in a few lines: how many, of what, how long, and what is left out."""

from collections.abc import Iterable, Sequence

from fedrec.errors import first_lines
from fedrec.plan.cost import duration
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId

_MOST_LINES = 20


def training_summary(project: Project, runs: Iterable[RunId], targets: Iterable[str]) -> str:
    """Summarise the `runs` that are to be trained for `targets`."""
    by_dataset: dict[tuple[str, str], list[RunId]] = {}
    for run in sorted(runs):
        by_dataset.setdefault((run.paper, run.dataset), []).append(run)
    seconds = {key: sum(project.job(run).seconds for run in group) for key, group in by_dataset.items()}
    lines = [_line(key, group, seconds[key]) for key, group in by_dataset.items()]
    total = sum(map(len, by_dataset.values()))
    first = f"Runs to train: {total}, about {duration(sum(seconds.values()))}; on a GPU far less."
    missing = [f"  left out: {name}: {why}" for name, why in _left_out(project, targets).items()]
    first = first if total else "Runs to train: none."
    return "\n".join([first, *first_lines(lines, _MOST_LINES), *first_lines(missing, _MOST_LINES)])


def _line(key: tuple[str, str], runs: Sequence[RunId], seconds: float) -> str:
    paper, dataset = key
    counts = {
        "method": len({run.method for run in runs}),
        "protocol": len({run.protocol for run in runs}),
        "seed": len({run.seed for run in runs}),
    }
    parts = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items())
    return f"  {dataset}, settings of {paper}: {len(runs)} ({parts}), about {duration(seconds)}"


def _left_out(project: Project, asked: Iterable[str]) -> dict[str, str]:
    """Why datasets, or published splits of them, are left out of what is asked for."""
    known = [name for name in asked if name in project.groups or name in project.targets.names]
    targets = [target for name in known for target in project.group(name)]
    return {name: why for target in targets for name, why in target.content.get("unavailable", {}).items()}
