"""What three processes do together for `test_distributed`.

Every case trains two rounds in three processes, goes on in two of them from what these have stored, and is held
to one process that does all of it. What came of each case is written to a file by the first process.
"""

import gc
import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import torch
from torch import distributed

from fedrec.data.split import Split
from fedrec.errors import DivergenceError, PeerError
from fedrec.evaluation.scoring import HELD_OUT_PARTS, candidate_ranks, catalogue_ranks
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import SINGLE, Communicator, DistributedCommunicator, Tensors
from fedrec.federation.federation import Federation
from fedrec.federation.observe.recorder import Recorder
from fedrec.federation.shards import merge_state, split_state
from fedrec.federation.state import sparse_rows
from fedrec.runs.process_group import ProcessGroup
from fedrec.runs.registry import make_method
from fedrec.runs.training import Training
from tests.contract.matrix import FEDERATED, SPEAKING
from tests.engines import ENGINES, LOOP
from tests.federations import CPU, apart, applicable, gentle, planted_blocks, settings_of, values_of
from tests.known_rules import rules_checked_once

PROCESSES = 3
USERS = 5
ROUNDS_OF_THREE, ROUNDS = 2, 3
OUTCOMES = "outcomes.json"
QUICK = ("batch_size=1000", "local_epochs=1")
"""What clients do by themselves is the same wherever they are: it is kept short."""
SETTINGS = [("participation=0.6", "weighting=equal"), ("aggregated=0.5",), ()]
"""Of five clients in three processes, in some rounds none of a process takes part."""
RECORDED = ("vectors=1,4", "uploads=0,3", "traffic", "abundance")


@dataclass(frozen=True)
class Shared:
    """A composition that processes share: its changes, and the way of running an engine."""

    name: str
    changes: tuple[str, ...] = ()
    engine: str = "batched"

    @property
    def id(self) -> str:
        return "-".join((self.name, *self.changes, self.engine))


METHODS = [Shared(name, SETTINGS[turn % len(SETTINGS)]) for turn, name in enumerate(FEDERATED)]
"""Every method and plug-in; what comes below is what else a server or an engine does."""
VARIANTS = [
    Shared("fedmf[combine=touched]", ("participation=0.6",)),
    Shared("fedmf[combine=change]"),
    Shared("fedmf[aggregate_from=2]"),
    Shared("fedmf[ldp=0.1][ldp_clip=3]", ("dp_noise=1",)),
    Shared("fedrap", ("optimiser=sgd", "weight_decay=0.1")),
    Shared("fedmf", ("clients=2",)),
    Shared("fedfast[participation=0.5]"),
    Shared("perfedrec[participation=0.5]"),
    Shared("gpfedrec[participation=0.5]", ("neighbours=2", "depth=2")),
    Shared("pfedgraph[penalty=0.5]", ("aggregated=1",)),
    Shared("fedem[similarity=distance]", ("aggregated=1",)),
    Shared("fedem[similarity=component]", ("aggregated=1",)),
    Shared("fedem[similarity=cosine]", ("aggregated=0.6",)),
    Shared("fedcia[participation=0.5]", ("noise=0.1",)),
    Shared("pfedclr", ("participation=0.6",), "rows"),
    Shared("fedmf+plgc", (), "rows"),
    Shared("fedmf", ("local_epochs=2", "batch_size=16"), "fused"),
    Shared("fedrecon", (), "fused"),
    Shared("fedmf[ldp=0.1]", ("participation=0.6", "dp_noise=1"), "loop"),
    Shared("fedrecon", (), "loop"),
]
CASES = [*METHODS, *VARIANTS]
IN_CORE = [*(case for case in METHODS if case.name in SPEAKING), *VARIANTS[::2]]
"""The cases of `make test`: every method, one composition of every plug-in, and every second variant."""


@cache
def split() -> Split:
    return planted_blocks(users=USERS, items=44, per_user=12)


def federation_of(
    case: Shared, communicator: Communicator, records: tuple[str, ...] = (), rounds: int = ROUNDS
) -> Federation:
    """A case before its first round, of those clients that are this process's."""
    asked = applicable(case.name, *QUICK, *case.changes)
    settings = settings_of(case.name, *gentle(case.name, *asked, f"rounds={rounds}"))
    clients = Clients.of_split(split(), CPU, communicator)
    held = LOOP if case.engine == "loop" else ENGINES[case.engine]
    method = make_method(case.name, settings, clients.items)
    assert method is not None
    recorder = Recorder.of(records, clients, rounds, communicator) if records else None
    return Federation(method, clients, held.make(), settings, 0, held.dense_bytes, recorder, communicator)


def told(reports) -> torch.Tensor:
    return torch.tensor([[report.loss, report.clients, report.up, report.down] for report in reports])


def ranks_of(federation: Federation) -> torch.Tensor:
    """The ranks of all held-out items, of the clients of all processes."""
    clients = federation.clients
    sampled = [candidate_ranks(federation, clients, part) for part in HELD_OUT_PARTS]
    whole = catalogue_ranks(federation, clients)
    own = torch.stack([*sampled, *(whole[part] for part in HELD_OUT_PARTS)], dim=1)
    return federation.communicator.all_gather(own)


def trained(federation: Federation, first: int, last: int) -> dict[str, torch.Tensor]:
    """What rounds said, and what came of them."""
    reports = [federation.train_round(round_) for round_ in range(first, last + 1)]
    return {"reports": told(reports), "ranks": ranks_of(federation)}


def stored(federation: Federation) -> Tensors:
    """What all processes have together, where files are written."""
    parts = federation.communicator.gather(federation.tensors())
    return {name: value.clone() for name, value in merge_state(parts).items()} if parts else {}


def compared(case: Shared, found: dict, tensors: Tensors, expected: dict, alone: Federation) -> float:
    """How far two ways are apart, as a share of the largest number of each tensor."""
    there, here = alone.tensors(), tensors
    if there.keys() != here.keys() or any(name.endswith("/version") for name in here):
        # The same changed rows may lie in other places.
        reread = federation_of(case, SINGLE)
        reread.load(tensors)
        there, here = values_of(alone), values_of(reread)
    return max(apart({**expected, **there}, {**found, **here}).values())


def outcome_of(case: Shared, three: Communicator, two: Communicator | None) -> dict[str, float]:
    """How far three processes, and then two, are apart from one."""
    alone = federation_of(case, SINGLE) if three.is_root else None
    federation = federation_of(case, three)
    found, tensors = trained(federation, 1, ROUNDS_OF_THREE), stored(federation)
    shares = {}
    if alone is not None:
        shares["3"] = compared(case, found, tensors, trained(alone, 1, ROUNDS_OF_THREE), alone)
    if two is not None:
        federation = federation_of(case, two)
        federation.load(two.scatter(lambda: split_state(tensors, two)))
        found, tensors = trained(federation, ROUNDS_OF_THREE + 1, ROUNDS), stored(federation)
    if alone is not None:
        shares["2"] = compared(case, found, tensors, trained(alone, ROUNDS_OF_THREE + 1, ROUNDS), alone)
    return shares


class InterruptedRunError(Exception):
    """A run ends before its last round."""


def training_of(folder: Path, communicator: Communicator, dies_in: int | None = None) -> Training:
    """A run with everything that may be recorded, whose every round is kept."""
    case = Shared("pfedgraph", ("aggregated=0.6",))
    federation = federation_of(case, communicator, (*RECORDED, "weights=0,2,4"))
    if dies_in is not None:
        train_round = federation.train_round

        def dying(round_):
            if round_ == dies_in:
                raise InterruptedRunError
            return train_round(round_)

        federation.train_round = dying
    identity = {"method": case.name, "seed": 0}
    return Training(federation.clients, federation, ROUNDS, folder, identity, 0.0, communicator=communicator)


def write_runs(folder: Path, three: Communicator, two: Communicator | None) -> None:
    """A run in one process, in three, and one of three processes that two take up."""
    if three.is_root:
        training_of(folder / "one", SINGLE).train()
    training_of(folder / "three", three).train()
    try:
        training_of(folder / "resumed", three, dies_in=ROUNDS).train()
    except InterruptedRunError:
        three.broadcast("all have noticed")
    if two is not None:
        training_of(folder / "resumed", two).train()


def divergence(communicator: Communicator) -> str:
    """What a process says whose clients do not diverge, when one of another's does."""
    federation = federation_of(Shared("fedmf"), communicator)
    if communicator.rank == 1:
        federation.state.client_tensors["p"].put(torch.tensor([0]), torch.full((1, 1, 16), torch.nan))
    try:
        federation.train_round(1)
    except DivergenceError as error:
        return str(error)
    return ""


def left_alone(communicator: Communicator) -> str:
    """What is said when another process is gone."""
    if communicator.rank == PROCESSES - 1:
        os._exit(0)
    try:
        communicator.all_reduce(torch.zeros(1))
    except PeerError as error:
        return str(error)
    return ""


def work(folder: Path, cases: list[Shared], environment: dict[str, str]) -> None:
    """What one of the processes does."""
    os.environ.update(environment)
    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    with ProcessGroup.of_environment().communicator(CPU) as three:
        pair = distributed.new_group([0, 1])
        two = DistributedCommunicator(CPU, pair) if three.rank < 2 else None
        outcomes = {case.id: outcome_of(case, three, two) for case in cases}
        write_runs(folder, three, two)
        said = {"divergence": divergence(three), "left alone": left_alone(three)}
        if three.is_root:
            (folder / OUTCOMES).write_text(json.dumps({"shares": outcomes, **said}))
        # Nobody is left to say goodbye to.
        os._exit(0)


def environments() -> Iterator[dict[str, str]]:
    """The variables that torchrun sets for each process."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    for rank in map(str, range(PROCESSES)):
        yield {
            "RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": str(PROCESSES), "LOCAL_WORLD_SIZE": str(PROCESSES),
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
        }  # fmt: skip


def main(folder: Path, *names: str) -> None:
    """Train the cases of these names.

    The processes are forked, since most of what a fresh one does is to import, some of it when it is first used.
    They find the rules of methods checked.
    """
    cases = [case for case in CASES if case.id in names]
    with rules_checked_once():
        _fork(folder, cases)


def _fork(folder: Path, cases: list[Shared]) -> None:
    # Changed rows fill several slabs, and those of two processes none to its end.
    sparse_rows._SLAB = 50
    split()
    torch.optim.Adam([torch.zeros(1, requires_grad=True)])
    torch.set_default_dtype(torch.float64)
    for case in cases:
        federation_of(case, SINGLE)
    # Nobody looks for garbage in what all of them have.
    gc.freeze()
    processes = [
        get_context("fork").Process(target=work, args=(folder, cases, environment))
        for environment in environments()
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    sys.exit(any(process.exitcode for process in processes))


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
