"""The front figure: HR@10 of all methods under the published and the clean protocol, by their own settings.

README, the page and the documentation show this one figure, drawn from the same runs.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from matplotlib.figure import Figure

from fedrec.config.methods import Methods, resolve
from fedrec.plan.runs import RunId, papers_with_equal_settings, run_of
from fedrec.reporting.figures.slope import has_counter, sampled_panel, sampled_words, slope_figure
from fedrec.reporting.headline import COUNTER_WORDS, headline, rounds_sentence, seeds_sentence
from fedrec.reporting.method_scores import CLEAN, PUBLISHED, MethodScore, method_scores
from fedrec.runs.exact import metric_title
from fedrec.runs.record import RunRecord


@dataclass(frozen=True)
class Front:
    """The method scores that the front figure shows, on one dataset."""

    scores: Sequence[MethodScore]
    otherwise: str
    """The paper whose settings replace a method's own if no runs with its own exist."""
    others: Sequence[str] = ()
    """The titles of the methods with replaced settings."""

    @property
    def settings(self) -> str:
        """The origin of the methods' settings, as the beginning of a sentence."""
        if {score.paper for score in self.scores} == {self.otherwise}:
            return f"All methods have the settings of {self.otherwise}"
        others = f"; {', '.join(self.others)}: those of {self.otherwise}" if self.others else ""
        return f"Each method has the settings of its own paper{others}"

    @property
    def caption(self) -> str:
        """The caption: the metric, the protocols, and the runs behind the figure."""
        scores = self.scores
        popular = "Dashed: popularity. " if any(score.backbone == "popularity" for score in scores) else ""
        chance = "Dotted: chance." if any(score.chance is not None for score in scores) else ""
        lines = [
            f"{sampled_words(scores)} on {scores[0].dataset}, {scores[0].users:,} users. Left: the "
            "published protocol, which leaks the held-out item. Right: the clean protocol, which does not.",
            f"{self.settings}. {seeds_sentence(scores)} {rounds_sentence(scores)}".rstrip(),
            f"Colours: who keeps the item table. {popular}{chance}".rstrip(),
        ]
        return "\n".join(lines)

    @property
    def description(self) -> str:
        """The alternative text of the figure."""
        return " ".join(
            [*headline(self.scores), "A slope chart from the published protocol to the clean one."]
        )


def front_of(
    records: Iterable[RunRecord], methods: Methods, names: Iterable[str], dataset: str, otherwise: str
) -> Front | None:
    """The method scores of the front figure on a dataset under both protocols; None without runs.

    Each method has the settings of its own paper, or of another paper with equal settings. Without such runs
    under both protocols it has the settings of the paper `otherwise`. All methods use the seeds that they
    have in common, if there are any.
    """
    there = {record.id: record for record in records if record.id.dataset == dataset}
    chosen: list[list[RunRecord]] = []
    borrowed = set()
    for name in dict.fromkeys(names):
        _, _, own = resolve(methods, name, None, dataset)
        same = dict.fromkeys([own, *papers_with_equal_settings(methods, name, own, dataset)])
        found_runs = (
            (paper, runs)
            for paper in dict.fromkeys([*same, otherwise])
            if (runs := _under_both(there, methods, paper, dataset, name))
        )
        paper, runs = next(found_runs, (own, []))
        if paper not in same:
            borrowed.add(runs[0].id.method)
        if runs:
            chosen.append(runs)
    if not chosen:
        return None
    shared = reduce(set.intersection, ({run.id.seed for run in runs} for runs in chosen))
    scores = method_scores(
        [run for runs in chosen for run in runs if not shared or run.id.seed in shared], methods
    )
    others = dict.fromkeys(score.title for score in scores if score.method in borrowed)
    return Front(scores, otherwise, list(others))


def front_figure(front: Front, *, narrow: bool = False) -> Figure:
    """Draw the front figure."""
    scores = front.scores
    heading = (
        f"{metric_title('hr@10')} on {scores[0].dataset}: {front.settings[0].lower()}{front.settings[1:]}"
    )
    note = COUNTER_WORDS if has_counter(scores) else ""
    return slope_figure([sampled_panel(scores, heading, narrow=narrow)], narrow=narrow, note=note)


def _under_both(
    there: Mapping[RunId, RunRecord], methods: Methods, paper: str, dataset: str, name: str
) -> list[RunRecord]:
    """The runs of a method with a paper's settings, for the seeds that both protocols have."""
    seeds = sorted({run.seed for run in there})
    pairs = [
        [there.get(run_of(methods, paper, dataset, protocol, name, seed)) for protocol in (PUBLISHED, CLEAN)]
        for seed in seeds
    ]
    both = [pair for pair in pairs if None not in pair]
    return [record for pair in both for record in pair if record is not None]
