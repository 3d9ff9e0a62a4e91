"""The cases in which engines are held to the plain loop.

`make test-all` runs the whole matrix. `make test` runs its core, which is chosen by this rule:

1. Every federated method, and one composition of every plug-in, trains once by every way of running an engine, with
   one of the settings in turn. A few simple methods train in two threads: threads that wait for each other are slow
   where cores are busy.
2. The fused engine trains the cases of `FURTHER`: they take every path through the engines that those of 1. do not.
"""

from dataclasses import dataclass
from functools import cache

from fedrec.config.modules import method_names
from tests.compositions import compositions, speaking
from tests.contract.paths import ITEMS, paths_of_method
from tests.engines import ENGINES
from tests.federations import METHODS, applicable, gentle, method_of

NAMES = [*method_names(), *compositions(METHODS)]
FEDERATED = [name for name in NAMES if method_of(name) is not None]
SETTINGS = [
    ("optimiser=adam", "aggregated=1", "batch_size=16", "early_stop=0.2", "local_epochs=3"),
    ("optimiser=sgd", "aggregated=1", "batch_size=7", "batch_decay=0.9"),
    ("optimiser=adam", "aggregated=1", "batch_size=1000", "participation=0.3"),
    ("optimiser=adam", "batch_size=7", "aggregated=0.5", "weighting=equal", "negatives=2"),
]
"""What every method meets; here no method is tested but the engines' ways through any of them.

Of few clients a tenth is one: the mean of its neighbours is its own table, and Adam makes steps of what
rounding leaves of their difference.
"""
FURTHER_SETTINGS = [
    ("optimiser=adam", "batch_size=16"),
    ("optimiser=sgd", "batch_size=16"),
    ("optimiser=adam", "batch_size=7", "batch_decay=0.9", "round_decay=0.9"),
    ("optimiser=adam", "negatives=7", "local_epochs=1"),
]
VARIANT = ("batch_size=16", "early_stop=0.2", "local_epochs=3")
"""The settings of every variant."""
SIMPLE = ["fedmf", "fedncf", "local-only", "fedrap"]
VARIANTS = [
    "pfedclr[correction=full][training=joint]",
    "pfedclr[aggregate_from=3]",
    "fedmf[aggregate_from=2]",
    "fedmf[ldp=0.1]",
    "fedmf[ldp=0.1][ldp_clip=3]",
    "fedmf[combine=touched]",
    "fedmf[combine=change]",
    "fedmf[combine=touched][ldp=0.1][ldp_clip=3]",
    "fedmf[combine=change][ldp=0.1][ldp_clip=3]",
    "fedncf[combine=touched][ldp=0.1]",
    "fedncf[layers=18x9]",
    "fedrecon[split=none]",
    "fedrecon[combine=touched]",
    "fedrecon[participation=0.5][ldp=0.1]",
    "fedfast[participation=0.5]",
    "fedfast[product=weighted]",
    "fedfast[participation=0.5][product=weighted][ldp=0.1][ldp_clip=3]",
    "colr[rows=sum][optimiser=adam]",
    "colr[combine=mean]",
    "colr[ldp=0.1][ldp_clip=3]",
    "fedrap[tables=shared]",
    "fedrap[tables=personal]",
    "fedrap[penalty=l2][curriculum=sin]",
    "fedrap[penalty=none][curriculum=frac]",
    "fedrap[entropy=probability]",
    "fedrap[dp_noise=1]",
    "fedmf[dp_noise=1]",
    "fedncf[dp_noise=1]",
    "pfedrec[dp_noise=1]",
    "fedrap[ldp=0.1][ldp_clip=3]",
    "fedem[aggregated=1][early_stop=null][merging=once][similarity=distance][weights=closed]",
    "fedem[merging=epoch]",
    "fedem[merge=dynamic]",
    "fedem[merge=dynamic][merging=once]",
    "fedem[merge=static]",
    "fedem[merge=replace]",
    "fedem[similarity=cosine]",
    "fedem[ldp=0.1][ldp_clip=3]",
    "fedrap+em[merging=epoch]",
    "fedncf+em[merging=batch]",
    "fedmf+em[merged=aggregated][aggregated=0.5][merging=batch]",
    "fedrap+em[merged=aggregated][aggregated=0.5][entropy=probability]",
    "gpfedrec+em[merged=aggregated][aggregated=0.5][merging=epoch]",
    "fedncf+dualper[score_part=shared]",
    "fedmf+plgc[redundancy=au]",
    "fedmf+plgc[redundancy=duorec]",
    "fedmf+plgc[redundancy=feddecorr]",
    "fedmf+plgc[mixing=off][centred=yes]",
    "fedmf+plgc[kept=mixed]",
    "fedrap+plgc[kept=mixed][participation=0.5]",
    "perfedrec+plgc[kept=mixed]",
    "fedmf+plgc[participation=0.3]",
    "perfedrec[forward=official]",
    "perfedrec[forward=none][adaptation=cluster]",
    "perfedrec[participation=0.5]",
    "perfedrec[ldp=0.1][ldp_clip=3]",
    "perfedrec+plgc[participation=0.5]",
    "fedcia[adam_state=fresh]",
    "fedcia[fitting=dimensions]",
    "fedcia[participation=0.5]",
    "fedcia[aggregate_from=2]",
    "fedcia[ldp=0.01][ldp_clip=50]",
    "pfedgraph[penalty=0.5]",
    "pfedgraph[penalty=0.5][sign=plus][aggregated=1]",
    "pfedgraph[penalty=0.5][batch_decay=0.9][round_decay=0.9]",
    "pfedgraph[penalty=0.5][aggregated=1][ldp=0.1][ldp_clip=3]",
    "gpfedrec[graph=similarity]",
    "gpfedrec[neighbours=3][depth=2]",
    "gpfedrec[participation=0.5]",
    "gpfedrec[optimiser=adam][batch_decay=0.9]",
    "gpfedrec[ldp=0.1][ldp_clip=3]",
    "gpfedrec+em[merging=batch]",
    "gpfedrec+em[merging=epoch]",
    "gpfedrec+em[merge=dynamic][participation=0.5]",
    "gpfedrec+em[merging=epoch][ldp=0.1][ldp_clip=3]",
    "gpfedrec+plgc[participation=0.5]",
]


UNSTEADY = {("gpfedrec+plgc", "optimiser=adam"): "pull=0"}
"""What is left out where rounding alone decides: PLGC leaves numbers a gradient that is zero but for rounding, Adam
makes a move of any gradient, and the pull back to R a gradient of any move, a hundred million times as large."""


@dataclass(frozen=True)
class Case:
    """A composition with changes, trained for some rounds."""

    name: str
    changes: tuple[str, ...]
    rounds: int = 2

    @property
    def id(self) -> str:
        return "-".join((self.name, *self.changes))

    @property
    def all_changes(self) -> tuple[str, ...]:
        steady = (UNSTEADY[self.name, change] for change in self.changes if (self.name, change) in UNSTEADY)
        return gentle(self.name, *applicable(self.name, "local_epochs=2", *self.changes, *steady))

    @cache  # noqa: B019 - cases are few, and equal ones are looked at once
    def reached(self) -> frozenset[str]:
        """Each path through the engines that it takes."""
        method = method_of(self.name, *self.all_changes, items=ITEMS)
        assert method is not None
        return paths_of_method(method)


def _matrix() -> list[Case]:
    each = [Case(name, settings) for name in FEDERATED for settings in SETTINGS]
    further = [Case(name, settings) for name in SIMPLE for settings in FURTHER_SETTINGS]
    return each + further + [Case(name, VARIANT, rounds=3) for name in VARIANTS]


def _leading() -> list[Case]:
    """One case of every method and composition: the settings in turn."""
    return [Case(name, SETTINGS[turn % len(SETTINGS)]) for turn, name in enumerate(FEDERATED)]


def covering(cases: list[Case], chosen: list[Case]) -> list[Case]:
    """Cases that take every path of `cases` that those of `chosen` do not: always the one that takes most of them."""
    covered, wanted, further = paths_of(chosen), paths_of(cases), []
    while covered != wanted:
        further.append(max(cases, key=lambda case: len(paths_of([case]) - covered)))
        covered |= paths_of(further)
    return further


def paths_of(cases: list[Case]) -> frozenset[str]:
    """The paths through the engines that cases take."""
    return frozenset(path for case in cases for path in case.reached())


MATRIX = _matrix()
LEADING = _leading()
SPEAKING = speaking(FEDERATED)
SPOKEN = [case for case in LEADING if case.name in SPEAKING]
"""The cases of rule 1."""
FURTHER = [
    Case("fedrap[dp_noise=1]", VARIANT, rounds=3),
    Case("pfedgraph[penalty=0.5][aggregated=1][ldp=0.1][ldp_clip=3]", VARIANT, rounds=3),
    Case("gpfedrec+em[merge=dynamic][participation=0.5]", VARIANT, rounds=3),
    Case("fedcia", SETTINGS[1]),
    Case("pfedclr[aggregate_from=3]", VARIANT, rounds=3),
    Case("fedmf[ldp=0.1]", VARIANT, rounds=3),
    Case("fedrap+plgc[kept=mixed][participation=0.5]", VARIANT, rounds=3),
]
"""What `covering(MATRIX, SPOKEN)` gave. It is written down because to look at every case takes long."""


def in_core(case: Case, engine: str) -> bool:
    """Whether `make test` runs a case by a way of running an engine."""
    further = engine == next(iter(ENGINES)) and case in FURTHER
    return further or (case in SPOKEN and (engine != "threads" or case.name in SIMPLE))
