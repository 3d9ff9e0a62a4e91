"""Every method on the GPU against the plain loop on the CPU, where a GPU is; no part of the usual tests.

    python -m tests.on_gpu            one case of every method, and every variant
    python -m tests.on_gpu --all      the whole matrix
    python -m tests.on_gpu fedmf      cases of some methods alone
    python -m tests.on_gpu programs   unusual losses and rounds of the corpus, and random programs

In double precision, where a difference is a mistake, and in single precision, where tables are fetched in the
background and differences are rounding; there twice, since the same run gives the same bytes. Programs are compared
in double precision alone. Ends with status 1 if any differs, or if a fit was not compiled that should be. It needs
what training needs, and pytest.
"""

import sys
import time
import traceback

import torch
from torch import Tensor

from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner
from tests.compiled import wrongly_trained
from tests.contract.matrix import LEADING, MATRIX, VARIANTS, Case
from tests.contract.test_engines import USERS
from tests.federations import apart, learner_of, planted_blocks, precision, values_of
from tests.programs.corpus import CASES
from tests.programs.outcome import mistakes_of, outcome_of
from tests.programs.random_programs import disagrees, drawn

_DOUBLE = 1e-9
"""How far the GPU may be from the loop in double precision, in shares of a tensor's largest number."""
_SINGLE, _TIMES_LOST = 1e-5, 10
"""And in single precision, from the loop in double: so much, or so often what the loop itself loses."""
_CHAOTIC = ("fedcia",)
"""Eigenvectors of equal eigenvalues: products of whole tables turn by another angle on another device."""
_BY_TORCH = ("lightgcn", "centrap")
"""Methods that are trained without the fused engine."""
_RANDOM_PROGRAMS, _SECONDS = 300, 90.0
"""Random programs that are tried, as many of them as this time allows."""


class CentralCase(Case):
    """A method that knows no local epochs; on the CPU it takes its steps one by one."""

    @property
    def all_changes(self) -> tuple[str, ...]:
        return self.changes


CENTRAL = [
    CentralCase(name, (*gentle, size))
    for name, gentle in (
        ("mf", ()),
        ("ncf", ()),
        ("lightgcn", ()),
        ("centrap", ("item_rate=1.0", "rate=1.0")),
    )
    for size in ("batch_size=8", "batch_size=100000")
]
"""Many mini-batches in an epoch, and one."""


def looped(case: Case, dtype: torch.dtype) -> dict[str, Tensor]:
    """The numbers of a case after its rounds, by the plain loop on the CPU."""
    with precision(dtype):
        clients = Clients.of_split(planted_blocks(users=USERS), torch.device("cpu"))
        learner = learner_of(case.name, clients, *case.all_changes, engine="loop")
        for round_ in range(1, case.rounds + 1):
            learner.train_round(round_)
        return values_of(learner)


def trained(case: Case, dtype: torch.dtype = torch.float32) -> Learner:
    """What a case trains, on the GPU after its rounds."""
    with precision(dtype):
        clients = Clients.of_split(planted_blocks(users=USERS), torch.device("cuda"))
        learner = learner_of(case.name, clients, *case.all_changes, engine="fused")
        for round_ in range(1, case.rounds + 1):
            learner.train_round(round_)
        return learner


def farthest(expected: dict[str, Tensor], learner: Learner) -> tuple[float, str]:
    """The largest difference of a learner on the GPU, in shares of a tensor's largest number, and where."""
    found = {name: value.cpu() for name, value in values_of(learner, torch.device("cuda")).items()}
    return max((share, name) for name, share in apart(expected, found).items())


def mistakes(case: Case) -> tuple[str, list[str]]:
    """How far a case is from the loop in double and in single precision; and what of it is no rounding."""
    precise = looped(case, torch.float64)
    in_double = trained(case, torch.float64)
    difference, name = farthest(precise, in_double)
    found = [] if difference <= _DOUBLE else [f"{name} by {difference:.1e}"]
    if case.name not in _BY_TORCH:
        found += wrongly_trained(case.name, in_double.notes(case.rounds)["training"])
    lost = max(apart(precise, looped(case, torch.float32)).values())
    once, again = trained(case), trained(case).tensors()
    single, name = farthest(precise, once)
    # What layers lose to rounding Adam blows up, in the loop as well.
    if not single <= max(_SINGLE, _TIMES_LOST * lost):
        found.append(f"single precision: {name} by {single:.1e}, where the loop loses {lost:.1e}")
    others = [name for name, value in once.tensors().items() if not torch.equal(value, again[name])]
    if others:
        found.append(f"other bytes the second time in {', '.join(others)}")
    return f"{difference:.1e}, single {single:.1e} (loop {lost:.1e})", found


def programs() -> int:
    """Compare the quick cases of the corpus and random programs; print those that differ, and say how many."""
    start, tried, compiled, failed = time.perf_counter(), 0, 0, 0
    for case in (case for case in CASES.values() if case.quick):
        outcome = outcome_of(case, "fused", "cuda")
        tried, compiled = tried + 1, compiled + (outcome.by == "compiled")
        for mistake in mistakes_of(case, outcome):
            failed += 1
            print(f"FAILED {mistake}", flush=True)
    for seed in range(_RANDOM_PROGRAMS):
        if time.perf_counter() - start > _SECONDS:
            break
        outcome = outcome_of(drawn(seed).case(), "fused", "cuda")
        tried, compiled = tried + 1, compiled + (outcome.by == "compiled")
        if disagrees(outcome):
            failed += 1
            print(f"FAILED random program {seed}: {outcome}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{tried} programs, {compiled} of them compiled, {failed} failed, {seconds:.0f} s", flush=True)
    return failed


def main() -> None:
    """Compare all cases, and print those that differ."""
    variant = ("batch_size=16", "early_stop=0.25", "local_epochs=3")
    cases = (
        MATRIX if "--all" in sys.argv else [*LEADING, *(Case(name, variant) for name in VARIANTS), *CENTRAL]
    )
    only = [name for name in sys.argv[1:] if not name.startswith("-")]
    failed = programs() if not only or "programs" in only else 0
    if only == ["programs"]:
        sys.exit(failed > 0)
    cases = [case for case in cases if not only or case.name in only]
    start = time.perf_counter()
    for case in cases:
        try:
            distances, found = mistakes(case)
        except Exception:
            # A list of all that fail is wanted.
            failed += 1
            print(f"FAILED {case.id}\n{traceback.format_exc(limit=-3)}", flush=True)
            continue
        print(f"{case.id}: {distances}, {time.perf_counter() - start:.0f} s", flush=True)
        known = case.name.startswith(_CHAOTIC)
        failed += bool(found) and not known
        for mistake in found:
            print(f"{'differs' if known else 'FAILED'} {case.id}: {mistake}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(cases)} cases, {failed} failed, on {torch.cuda.get_device_name()}, {seconds:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
