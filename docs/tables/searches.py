"""Tables of searches: what each found, and how good the searches of the leaderboard were."""

import csv
from collections.abc import Sequence
from typing import TYPE_CHECKING

from docs.tables.numbers import REFERENCE, ROOT, Row, markdown, stored_table

if TYPE_CHECKING:
    from fedrec.config.method_entries import Finding
    from fedrec.config.tuning import Search

_EDGES = 20
"""Equal parts of a range, of which the first and the last are its edges."""


def searches() -> str:
    """The findings of every search, beside the values without it; its numbers where its table is kept."""
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
            (f"`{search.key}`", search.dataset, *_found(search, found), *_reached(kept_trials(search.target)))
            for search in known.values()
            if (found := finding_of(methods, search)) is not None
        ),
        right=5,
    )


def searched_alike() -> str:
    """What tells how good a search of the leaderboard was: its two best trials, their rounds and edges."""
    from fedrec.config.methods import load_methods
    from fedrec.config.tuning import finding_of, load_tuning

    methods = load_methods(ROOT / "config/methods.yaml")
    lines = []
    for search in load_tuning(ROOT / "config/tuning.yaml", methods).under_shared_protocol:
        trials, found = kept_trials(search.target), finding_of(methods, search)
        if trials and found is not None:
            best, second, *_ = sorted(_finalists(trials), key=_on_validation, reverse=True)
            lines.append(
                (
                    f"`{search.key}`",
                    search.dataset,
                    _at_an_edge(search, found) or "–",
                    f"{', '.join(best['round'].split())} of {best['rounds']}",
                    f"{_on_validation(best):.3f}",
                    f"{_on_validation(second):.3f}",
                )
            )
    return markdown(("search", "on", "at an edge", "round", "best", "second"), lines, right=3)


def _finalists(trials: Sequence[Row]) -> list[Row]:
    """The trials that were trained for all rounds, and with as many seeds as any."""
    whole = [trial for trial in trials if trial["ended_early"] == "False"]
    seeds = [len(trial["seeds"].split()) for trial in whole]
    return [trial for trial, number in zip(whole, seeds, strict=True) if number == max(seeds)]


def _on_validation(trial: Row) -> float:
    return float(trial["ndcg@10"])


def _at_an_edge(search: "Search", found: "Finding") -> str:
    """The values that a search found within 5 % of an end of their range."""
    from fedrec.config.methods import setting_text
    from fedrec.plan.trials import section_of

    values = {name: setting_text(value) for name, value in found.settings.items()}
    return ", ".join(
        f"{one.setting} {values[one.setting]}"
        for one in search.ranges
        if one.bounds is not None and section_of(one, values[one.setting], _EDGES) in (0, _EDGES - 1)
    )


def kept_trials(target: str) -> list[Row]:
    """The trials of a search whose table is kept; none of another."""
    from fedrec.reporting.frozen import frozen_targets, frozen_text

    if target not in frozen_targets(REFERENCE):
        return []
    return list(csv.DictReader(frozen_text(REFERENCE, target, ".csv").splitlines()))


def _found(search: "Search", found: "Finding") -> tuple[str, str, str, str]:
    """The values that a search found, those without it, and its numbers of trials and of seeds."""
    from fedrec.config.methods import setting_text

    values = (f"{name} {setting_text(value)}" for name, value in found.settings.items())
    without = (f"{one.setting} {one.was}" for one in search.ranges if one.setting in found.settings)
    return ", ".join(values), ", ".join(without), str(found.trials), str(found.seeds)


def _reached(trials: Sequence[Row]) -> tuple[str, str, str]:
    """NDCG@10 on validation of the best trial and of the first, and how many are near the best."""
    if not trials:
        return "–", "–", "–"
    (best,) = (trial for trial in trials if trial["chosen"] == "True")
    (first,) = (trial for trial in trials if trial["trial"] == "0")
    near = sum(float(trial["ndcg@10"]) >= 0.95 * float(best["ndcg@10"]) for trial in trials)
    return f"{float(best['ndcg@10']):.3f}", f"{float(first['ndcg@10']):.3f}", str(near)


def alike() -> str:
    """How many searches of the leaderboard are finished on each dataset, and what they took."""
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
