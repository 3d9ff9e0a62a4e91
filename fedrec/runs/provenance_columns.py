"""Columns of a table that name the runs behind each row."""

from collections.abc import Iterable, Sequence
from typing import Any

from fedrec.plan.runs import DIVERGED
from fedrec.runs.record import RunRecord


def folders_of(records: Iterable[RunRecord]) -> list[str]:
    """The folders of runs below the results, each once: the column `runs` of a csv.

    Records of other systems are left out: they are no runs.
    """
    return list(dict.fromkeys(record.id.folder for record in records if record.score_source is None))


def source_text(record: RunRecord) -> str:
    """The file of another system's scores, its checksum and the date of ranking; empty for a run."""
    source = record.score_source
    if source is None:
        return ""
    return f"{source['file']}, sha256 {source['sha256'][:8]}, ranked {source['date'][:10]}"


def divergence_columns(records: Iterable[RunRecord]) -> dict[str, list[str]]:
    """The column of diverged runs, `seed:round` such as `0:7`; no column if none diverged."""
    diverged = [f"{record.id.seed}:{record.diverged}" for record in records if record.diverged is not None]
    return {DIVERGED: diverged} if diverged else {}


def origin_columns(records: Sequence[RunRecord]) -> dict[str, Any]:
    """Columns about the runs of a row: seeds, hashes of splits and code, divergence, folders.

    Records of other systems give a source instead of a seed.
    """
    sources = [words for record in records if (words := source_text(record))]
    return {
        "seeds": " ".join(str(record.id.seed) for record in records if record.score_source is None),
        # Runs with different seeds may have been trained by different code.
        "split_hash": " ".join(dict.fromkeys(record.summary["split"] for record in records)),
        "code": " ".join(dict.fromkeys(record.summary["code"] for record in records)),
        **divergence_columns(records),
        **({"source": "; ".join(sources)} if sources else {}),
        "runs": folders_of(records),
    }
