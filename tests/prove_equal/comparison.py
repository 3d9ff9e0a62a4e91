"""Compares the evidence of two source trees, and says why they are not proven equal."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.prove_equal.changes import Changes, changes, file_of, statements_of

Evidence = Mapping[str, Any]
"""What `recorder` writes."""
_MOST = 12
"""Differences of one kind that are listed."""
_WITHOUT_PAPER = "this method follows no paper"
"""Words of the error for a method without a paper under a paper's protocol."""


@dataclass(frozen=True)
class Version:
    """A source tree with its evidence: one recording on a CPU, perhaps one or two on a GPU."""

    package: Path
    cpu: Evidence
    gpu: Evidence | None = None
    gpu_again: Evidence | None = None
    """A second recording on the same GPU, by which runs are found that differ each time."""
    known_unstable: Sequence[str] = ()
    """Runs that differed each time in an earlier proof."""

    @property
    def lines(self) -> dict[str, set[int]]:
        """The lines of each file that any recording executed."""
        found: dict[str, set[int]] = {}
        for evidence in (self.cpu, self.gpu or {}):
            for file, lines in evidence.get("lines", {}).items():
                found.setdefault(file, set()).update(lines)
        return found

    @property
    def unstable(self) -> list[str]:
        """The runs that give other numbers each time on a GPU: sums there may have no fixed order."""
        if self.gpu is None:
            return []
        runs = self.gpu["runs"]
        again = runs if self.gpu_again is None else self.gpu_again["runs"]
        found = {key for key in runs.keys() & again.keys() if runs[key] != again[key]}
        return sorted(found.union(self.known_unstable))

    @property
    def covered(self) -> set[str]:
        """The files of the modules that the fingerprints cover."""
        return {file_of(module, self.package) for module in self.cpu["modules"]}


def differences(
    before: Version,
    after: Version,
    literals: str | None = None,
    unexecuted: str | None = None,
    other_texts: str | None = None,
) -> Iterator[str]:
    """Every reason why two versions are not proven equal, one line each.

    `literals` is the reason why changed statements spell other literals or comparisons, `unexecuted` the reason
    why no recorded run executes some of them, `other_texts` the reason why some kernels have other texts though
    all runs have the same numbers; without a reason that is refused.
    """
    yield from _differing_runs(before.cpu, after.cpu, "CPU")
    if before.gpu is not None and before.gpu_again is not None:
        yield from _incomparable(before.gpu, before.gpu_again, "GPU")
    if before.gpu is not None and after.gpu is not None:
        yield from _differing_runs(before.gpu, after.gpu, "GPU", before.unstable)
    if other_texts is None:
        yield from _differing_texts(before, after)
    new, old = _changes(before, after)
    if unexecuted is None:
        for version, changed, which in ((after, new, "newer"), (before, old, "older")):
            found = _unexecuted(version, changed)
            yield from _listed(f"changed code that no recorded run executes, in the {which} commit", found)
    if literals is None:
        for one, other, which in ((new, old, "newer"), (old, new, "older")):
            spelled = sorted((one.literals - other.literals).elements())
            yield from _listed(f"literals and comparisons that only the {which} commit spells", spelled)


def _differing_texts(before: Version, after: Version) -> Iterator[str]:
    # Where a GPU gives no number, or another one each time, the texts must speak for it.
    if before.gpu is None or after.gpu is None or before.unstable:
        yield from _differing_kernels(before.cpu, after.cpu)
    if before.unstable and before.gpu and after.gpu and not _compiles_all(before.gpu, after.gpu):
        yield "the newer commit does not compile all kernels for the GPU of the older one"


def other_texts_of(before: Version, after: Version) -> dict[str, Any]:
    """The cases whose kernels have other texts, and how many texts only the older commit compiles."""
    old, new = before.cpu["kernels"], after.cpu["kernels"]
    devices = [
        (one, other) for one, other in ((before.cpu, after.cpu), (before.gpu, after.gpu)) if one and other
    ]
    return {
        "cases": sorted(key for key in old if old[key] != new.get(key)),
        "only_the_older_compiles": [
            [len(set(one["compiled"]) - set(other["compiled"])), len(one["compiled"])]
            for one, other in devices
        ],
    }


def unexecuted_counts(before: Version, after: Version) -> dict[str, list[int]]:
    """How many changed statements of each commit no recorded run executes, of how many."""
    new, old = _changes(before, after)
    return {
        which: [len(_unexecuted(version, changed)), len(changed.statements)]
        for which, version, changed in (("newer", after, new), ("older", before, old))
    }


def _changes(before: Version, after: Version) -> tuple[Changes, Changes]:
    """The statements that only the newer version has, and those that only the older one has."""
    statements = [statements_of(version.package) for version in (before, after)]
    return changes(*statements, after.covered), changes(*reversed(statements), before.covered)


def _unexecuted(version: Version, changed: Changes) -> list[str]:
    """The changed statements of a version that no recorded run executes."""
    return [str(one) for one in changed.statements if not one.is_executed(version.lines)]


def pairs(before: Evidence, after: Evidence) -> list[tuple[str, str]]:
    """The fingerprints of the older version that the newer one replaces, with those that replace them."""
    old, new = before["fingerprints"], after["fingerprints"]
    return sorted({(old[key], new[key]) for key in old.keys() & new.keys() if old[key] != new[key]})


def _incomparable(before: Evidence, after: Evidence, device: str) -> Iterator[str]:
    """Why two recordings cannot say that a run has other numbers."""
    if before["plan"] != after["plan"]:
        yield f"the recordings on the {device} followed different plans"
    if before["machine"] != after["machine"]:
        yield f"the recordings on the {device} are of different machines: {before['machine']}, {after['machine']}"
    old, new = before["runs"], after["runs"]
    if not old:
        yield f"the older recording on the {device} has no run"
    lacking = sorted(key for key in old.keys() ^ new.keys() if key in old or not _is_new(key, before))
    yield from _listed(f"runs that one {device} recording lacks", lacking)
    alike = refused_alike(before, after)
    failed = [
        f"{key}: {run['failed']}"
        for runs in (old, new)
        for key, run in runs.items()
        if "failed" in run and key not in alike and not _is_new(key, before)
    ]
    yield from _listed(f"runs that failed on the {device}", failed)


def refused_alike(before: Evidence, after: Evidence) -> set[str]:
    """The runs under `published` that both versions refuse, because their method follows no paper.

    The same engine must train each of these methods under another protocol.
    """
    old, new = before["runs"], after["runs"]
    trained = {_case_of(key) for key, run in new.items() if "failed" not in run}
    return {
        key
        for key, run in old.items()
        if _WITHOUT_PAPER in run.get("failed", "") and run == new.get(key) and _case_of(key) in trained
    }


def _case_of(key: str) -> tuple[str, str]:
    """The method and the engine of a run, by the key `method protocol engine`."""
    method, _, rest = key.partition(" ")
    return method, rest.rpartition(" ")[2]


def _differing_runs(
    before: Evidence, after: Evidence, device: str, unstable: Sequence[str] = ()
) -> Iterator[str]:
    yield from _incomparable(before, after, device)
    old, new = before["runs"], after["runs"]
    other = [
        f"{key} ({', '.join(name for name in old[key] if old[key][name] != new[key].get(name))})"
        for key in sorted(old.keys() & new.keys())
        if old[key] != new[key] and key not in unstable
    ]
    yield from _listed(f"runs with other numbers on the {device}", other)


def _differing_kernels(before: Evidence, after: Evidence) -> Iterator[str]:
    hint = "the numbers on a GPU must show that they are equal (--gpu)"
    old, new = before["kernels"], after["kernels"]
    changed = (key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
    keys = sorted(key for key in changed if key in old or not _is_new(key.partition(": ")[2], before))
    yield from _listed(f"generated kernels whose texts differ; {hint}", keys)
    if not _compiles_all(before, after):
        yield f"the newer commit does not compile all kernels of the older one; {hint}"


def _is_new(case: str, before: Evidence) -> bool:
    """Whether a run or kernel is of a method that the older commit lacks: it executes new code, and compares none."""
    method = case.partition(" ")[0].partition("[")[0]
    return method in before.get("absent", ())


def _compiles_all(before: Evidence, after: Evidence) -> bool:
    """Whether the newer commit compiles every text that the older one compiles; it may compile more."""
    return set(before["compiled"]) <= set(after["compiled"])


def _listed(what: str, found: Sequence[str]) -> Iterator[str]:
    if found:
        more = f" and {len(found) - _MOST} more" if len(found) > _MOST else ""
        yield f"{what} ({len(found)}): {'; '.join(found[:_MOST])}{more}"
