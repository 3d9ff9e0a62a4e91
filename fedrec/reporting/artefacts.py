"""From an artefact to its files: collects its runs and hands them to its layout."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrec.config.catalogue import Catalogue
from fedrec.config.papers import PICTURES, Artefact
from fedrec.config.protocol import short_name
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.selection import runs_of
from fedrec.reporting import figures, other_tables, pictures
from fedrec.reporting.captions import table_caption
from fedrec.reporting.dataset_statistics import statistics_rows, statistics_tables
from fedrec.reporting.metric_tables import metric_rows, metric_tables, notes_on
from fedrec.reporting.plotted import Found
from fedrec.reporting.results import Result
from fedrec.reporting.tables import Table, write_forms


@dataclass(frozen=True)
class Workshop:
    """What artefacts are built from: the results so far, settings, datasets and seeds."""

    results: Path
    methods: Mapping[str, Any]
    catalogue: Catalogue
    seeds: Sequence[int]
    unavailable: Mapping[str, str]

    def build(self, artefact: Artefact) -> None:
        """Write all files of an artefact; its runs must be finished."""
        stem = self.results / f"{artefact.form}s" / artefact.target
        if artefact.layout in PICTURES:
            pictures.draw(artefact, self._found(artefact), self.methods, stem)
        elif artefact.form == "figure":
            found = self._found(artefact)
            figures.draw(
                artefact, found, self.methods, stem, data=self.results / "data", unavailable=self.unavailable
            )
        elif artefact.layout == "statistics":
            self._statistics(artefact, stem)
        elif artefact.layout == "results":
            found = self._found(artefact)
            inactive = other_tables.inactive_users(self.results / "data", artefact)
            rows = metric_rows(artefact, found, self.methods, inactive)
            notes = notes_on(artefact, self.unavailable)
            caption = table_caption(artefact, [one for group in found.values() for one in group])
            write_forms(stem, rows, metric_tables(artefact, rows, caption, notes))
        else:
            self._other(artefact, stem)

    def _found(self, artefact: Artefact) -> Found:
        found = runs_of(artefact, self.methods, self.seeds, self.unavailable)
        return {
            (index, dataset, short_name(protocol)): [Result(run, self.results / run.folder) for run in runs]
            for (index, dataset, protocol), runs in found.items()
        }

    def _statistics(self, artefact: Artefact, stem: Path) -> None:
        described = {name: found for name in artefact.datasets if (found := self._described(name))}
        missing = {name: why for name, why in self.unavailable.items() if name in artefact.datasets}
        rows = [
            row
            for row in statistics_rows(self.catalogue, described, missing)
            if row["paper"] == artefact.paper
        ]
        write_forms(
            stem, rows, statistics_tables(rows, code_fingerprint("fedrec.reporting.dataset_statistics"))
        )

    def _other(self, artefact: Artefact, stem: Path) -> None:
        found: Found = {}
        if artefact.layout == "rates":
            shape = other_tables.rates_table(artefact, self.methods)
        elif artefact.layout == "inactive":
            shape = other_tables.inactive_table(artefact, self.results / "data")
        elif artefact.layout == "costs":
            shape = other_tables.costs_table(artefact, self.methods)
        elif artefact.layout == "space":
            shape = other_tables.space_table(artefact, self.methods, self._sizes(artefact))
        elif artefact.layout == "time":
            found = self._found(artefact)
            shape = other_tables.time_table(artefact, found, self.methods)
        else:
            found = self._found(artefact)
            items = {name: items for name, (_, items) in self._sizes(artefact).items()}
            shape = other_tables.effort_table(artefact, found, self.methods, items)
        rows, columns = shape
        runs = [one for group in found.values() for one in group]
        notes = notes_on(artefact, self.unavailable)
        write_forms(stem, rows, [Table(table_caption(artefact, runs), columns, rows, notes)])

    def _sizes(self, artefact: Artefact) -> dict[str, tuple[int, int]]:
        """Users and items of the datasets that are at hand."""
        return {
            name: (found["users"], found["items"])
            for name in artefact.datasets
            if (found := self._described(name))
        }

    def _described(self, dataset: str) -> Mapping[str, Any] | None:
        path = self.results / "data" / dataset / "statistics.json"
        if dataset in self.unavailable or not path.is_file():
            return None
        found: Mapping[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return found
