"""Tables of searches: their findings, and the quality of the leaderboard's searches."""

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING

from docs.tables.numbers import REFERENCE, ROOT, Row, markdown, stored_table

if TYPE_CHECKING:
    from fedrec.config.method_entries import Finding
    from fedrec.config.tuning import Search

_EDGES = 20
"""The number of equal parts of a range; the first and the last are its edges."""


def searches() -> str:
    """The findings of every search beside the values before it, with its numbers if its table is frozen."""
    from fedrec.config.methods import load_methods
    from fedrec.config.tuning import finding_of, load_tuning

    methods = load_methods(ROOT / "config/methods.yaml")
    known = load_tuning(ROOT / "config/tuning.yaml", methods).searches
    return markdown(
        (
            "search",
            "dataset",
            "settings found",
            "settings without the search",
            "trials",
            "seeds",
            "validation NDCG@10 found",
            "validation NDCG@10 without",
            "trials within 5 %",
        ),
        (
            (
                f"`{search.key}`",
                search.dataset,
                *_finding(search, finding),
                *_validation(frozen_trials(search.target)),
            )
            for search in known.values()
            if (finding := finding_of(methods, search)) is not None
        ),
        right=5,
    )


def searched_alike() -> str:
    """The quality of the leaderboard's searches: their two best trials, rounds, and values at edges."""
    from fedrec.config.methods import load_methods
    from fedrec.config.tuning import finding_of, load_tuning

    methods = load_methods(ROOT / "config/methods.yaml")
    lines = []
    for search in load_tuning(ROOT / "config/tuning.yaml", methods).under_shared_protocol:
        trials, finding = frozen_trials(search.target), finding_of(methods, search)
        if trials and finding is not None:
            best, second, *_ = sorted(_finalists(trials), key=_on_validation, reverse=True)
            lines.append(
                (
                    f"`{search.key}`",
                    search.dataset,
                    _at_an_edge(search, finding) or "–",
                    f"{', '.join(best['round'].split())} of {best['rounds']}",
                    f"{_on_validation(best):.3f}",
                    f"{_on_validation(second):.3f}",
                )
            )
    return markdown(("search", "on", "at an edge", "round", "best", "second"), lines, right=3)


def _finalists(trials: Sequence[Row]) -> list[Row]:
    """The fully trained trials with the most seeds."""
    whole = [trial for trial in trials if trial["ended_early"] == "False"]
    seeds = [len(trial["seeds"].split()) for trial in whole]
    return [trial for trial, number in zip(whole, seeds, strict=True) if number == max(seeds)]


def _on_validation(trial: Row) -> float:
    return float(trial["ndcg@10"])


def _at_an_edge(search: "Search", finding: "Finding") -> str:
    """The values of a finding within 5 % of an end of their range."""
    from fedrec.config.methods import setting_text
    from fedrec.plan.trials import section_of

    values = {name: setting_text(value) for name, value in finding.settings.items()}
    return ", ".join(
        f"{range_.setting} {values[range_.setting]}"
        for range_ in search.ranges
        if range_.bounds is not None and section_of(range_, values[range_.setting], _EDGES) in (0, _EDGES - 1)
    )


def frozen_trials(target: str) -> list[Row]:
    """The trials of a search with a frozen table; empty for another search."""
    from fedrec.reporting.frozen import frozen_targets, frozen_text

    if target not in frozen_targets(REFERENCE):
        return []
    return list(csv.DictReader(frozen_text(REFERENCE, target, ".csv").splitlines()))


def _finding(search: "Search", finding: "Finding") -> tuple[str, str, str, str]:
    """The values that a search found, those before it, and its numbers of trials and seeds."""
    from fedrec.config.methods import setting_text

    values = (f"{name} {setting_text(value)}" for name, value in finding.settings.items())
    without = (
        f"{range_.setting} {range_.was}" for range_ in search.ranges if range_.setting in finding.settings
    )
    return ", ".join(values), ", ".join(without), str(finding.trials), str(finding.seeds)


def _validation(trials: Sequence[Row]) -> tuple[str, str, str]:
    """Validation NDCG@10 of the best and of the first trial, and the number of trials near the best."""
    if not trials:
        return "–", "–", "–"
    (best,) = (trial for trial in trials if trial["chosen"] == "True")
    (first,) = (trial for trial in trials if trial["trial"] == "0")
    near = sum(float(trial["ndcg@10"]) >= 0.95 * float(best["ndcg@10"]) for trial in trials)
    return f"{float(best['ndcg@10']):.3f}", f"{float(first['ndcg@10']):.3f}", str(near)


def alike() -> str:
    """The finished searches of the leaderboard by dataset, and their trials."""
    rows = [row for row in stored_table("leaderboard") if row["search"]]
    lines = []
    for dataset in dict.fromkeys(row["dataset"] for row in rows):
        own = [row for row in rows if row["dataset"] == dataset]
        finished = [row for row in own if row["trials"]]
        missing = [row["title"] for row in own if not row["trials"]]
        without = ", ".join(missing) if len(missing) < len(own) else "all"
        trials = sum(int(row["trials"]) for row in finished)
        lines.append((dataset, without if missing else "–", f"{len(finished)} of {len(own)}", f"{trials:,}"))
    return markdown(("dataset", "not finished", "searches finished", "their trials"), lines, right=2)
