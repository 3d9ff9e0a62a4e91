"""Every method on the GPU against the plain loop on the CPU, where a GPU is; no part of the usual tests.

    python -m tests.on_gpu            one case of every method, and every variant
    python -m tests.on_gpu --all      the whole matrix
    python -m tests.on_gpu fedmf      cases of some methods alone

In double precision, where a difference is a mistake, and once more in single precision, twice: the same run gives the
same bytes. Ends with status 1 if any differs.
"""

import sys
import time
import traceback

import torch

from fedrec.federation.clients import Clients
from fedrec.federation.learner import Learner
from tests.contract.matrix import LEADING, MATRIX, VARIANTS, Case
from tests.contract.test_engines import USERS
from tests.federations import learner_of, planted_blocks, precision, values_of

_TOLERANCE = 1e-9
_CHAOTIC = ("fedcia",)
"""Eigenvectors of equal eigenvalues: products of whole tables turn by another angle on another device."""


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


def distance(case: Case) -> tuple[float, str, dict]:
    """The largest difference after the rounds of a case, in shares of each tensor's largest number."""
    with precision(torch.float64):
        split = planted_blocks(users=USERS)
        loop = learner_of(
            case.name, Clients.of_split(split, torch.device("cpu")), *case.all_changes, engine="loop"
        )
        for round_ in range(1, case.rounds + 1):
            loop.train_round(round_)
        fused = trained(case)
        worst = (0.0, "")
        found = values_of(fused, torch.device("cuda"))
        for name, value in values_of(loop).items():
            expected, actual = value.double(), found[name].double().cpu()
            scale = expected.abs().max().clamp(min=1e-12)
            worst = max(worst, (float((expected - actual).abs().max() / scale), name))
        return *worst, fused.notes(case.rounds)


def trained(case: Case) -> Learner:
    """What a case trains, on the GPU after its rounds."""
    clients = Clients.of_split(planted_blocks(users=USERS), torch.device("cuda"))
    learner = learner_of(case.name, clients, *case.all_changes, engine="fused")
    for round_ in range(1, case.rounds + 1):
        learner.train_round(round_)
    return learner


def not_repeated(case: Case) -> list[str]:
    """What comes out otherwise when the same run is done again."""
    first, second = (trained(case).tensors() for _ in range(2))
    return [name for name, value in first.items() if not torch.equal(value, second[name])]


def main() -> None:
    """Compare all cases, and print those that differ."""
    variant = ("batch_size=16", "early_stop=0.25", "local_epochs=3")
    cases = (
        MATRIX if "--all" in sys.argv else [*LEADING, *(Case(name, variant) for name in VARIANTS), *CENTRAL]
    )
    only = [name for name in sys.argv[1:] if not name.startswith("-")]
    cases = [case for case in cases if not only or case.name in only]
    failed = 0
    start = time.perf_counter()
    for case in cases:
        try:
            difference, name, notes = distance(case)
            others = not_repeated(case)
        except Exception:
            # A list of all that fail is wanted.
            failed += 1
            print(f"FAILED {case.id}\n{traceback.format_exc(limit=-3)}", flush=True)
            continue
        print(f"{case.id}: {difference:.1e}, {time.perf_counter() - start:.0f} s", flush=True)
        if not difference <= _TOLERANCE:
            known = case.name.startswith(_CHAOTIC)
            failed += not known
            print(
                f"{'differs' if known else 'FAILED'} {case.id}: {name} by {difference:.1e} {notes}",
                flush=True,
            )
        if others:
            failed += 1
            print(f"FAILED {case.id}: other bytes the second time in {', '.join(others)}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(cases)} cases, {failed} failed, on {torch.cuda.get_device_name()}, {seconds:.0f} s")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
