"""Summary of the runs to train for targets: their number by dataset, estimated time, unavailable data."""

from collections.abc import Collection, Iterable, Mapping, Sequence

from fedrec.errors import first_lines
from fedrec.plan.cost import duration, gpu_seconds_of
from fedrec.plan.project import Project
from fedrec.plan.runs import RunId
from fedrec.progress import span_text

_MOST_LINES = 20
_NONE = "Runs to train: none."


def training_summary(
    project: Project, runs: Collection[RunId], targets: Iterable[str], cores: int | None = None
) -> str:
    """Summarise the `runs` to train for `targets`; with `cores`, also the time on that many cores."""
    by_dataset: dict[tuple[str, str], list[RunId]] = {}
    for run in sorted(runs):
        by_dataset.setdefault((run.paper, run.dataset), []).append(run)
    seconds = {run: project.job(run).seconds for run in runs}
    lines = [_line(key, group, sum(map(seconds.__getitem__, group))) for key, group in by_dataset.items()]
    missing = [f"  left out: {name}: {why}" for name, why in _left_out(project, targets).items()]
    first = f"Runs to train: {len(seconds)}, {_estimate(project, seconds, cores)}." if seconds else _NONE
    return "\n".join([first, *first_lines(lines, _MOST_LINES), *first_lines(missing, _MOST_LINES)])


def _estimate(project: Project, seconds: Mapping[RunId, float], cores: int | None) -> str:
    """Estimated time of runs: on CPU cores, from their `seconds` on one core, and one by one on a GPU."""
    costs = project.configuration["gpu_costs"]
    on_gpu = sum(gpu_seconds_of(run, project.methods, project.catalogue, costs) for run in seconds)
    whole = sum(seconds.values())
    longest = max(seconds.values())
    at_once = "" if cores is None else f" ({span_text(max(whole / cores, longest))} on {cores} cores)"
    return f"about {duration(whole)} on a CPU{at_once}, or {span_text(on_gpu)} on a GPU (estimated)"


def _line(key: tuple[str, str], runs: Sequence[RunId], seconds: float) -> str:
    paper, dataset = key
    counts = {
        "method": len({run.method for run in runs}),
        "protocol": len({run.protocol for run in runs}),
        "seed": len({run.seed for run in runs}),
    }
    parts = ", ".join(f"{count} {word}{'s' if count > 1 else ''}" for word, count in counts.items())
    return f"  {dataset}, settings of {paper}: {len(runs)} ({parts}), about {duration(seconds)}"


def _left_out(project: Project, names: Iterable[str]) -> dict[str, str]:
    """The datasets and splits that the named targets leave out, with the reasons."""
    known = [name for name in names if name in project.groups or name in project.targets.names]
    targets = [target for name in known for target in project.group(name)]
    return {name: why for target in targets for name, why in target.content.get("unavailable", {}).items()}
