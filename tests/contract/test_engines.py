"""Every engine against the plain loop, on every method: a new one joins by itself."""

import os
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
import torch
import torch._dynamo  # Optimisers import it at their first step: among tests, every worker would compile it.

from fedrec.config.names import parse
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import Fit
from fedrec.federation.program import trace
from fedrec.federation.state.sparse_rows import SparseRowsTensor
from tests.compiled import NOT_COMPILED, assert_compiled, skip_without_compiler, wrongly_trained
from tests.contract.matrix import (
    FEDERATED,
    FURTHER,
    LEADING,
    MATRIX,
    SETTINGS,
    SIMPLE,
    SPOKEN,
    Case,
    covering,
    in_core,
)
from tests.engines import ENGINES
from tests.federations import (
    apart,
    assert_same,
    clients_of,
    gentle,
    learner_of,
    method_of,
    planted_blocks,
    precision,
    trained,
)

FEW: Mapping[str, Any] = {"users": 5, "per_user": 14}
"""Users of 8 to 12 training rows: mini-batches are cut at other places for each."""
USERS = FEW["users"]


def assert_equals_the_loop(case: Case, engine: str, relative: float, dtype: torch.dtype) -> None:
    how = {"rounds": case.rounds, "dtype": dtype, **FEW}
    expected = trained(case.name, *case.all_changes, engine="loop", **how)
    actual = trained(case.name, *case.all_changes, engine=engine, **how)
    if engine == "fused" and trains(case):
        assert_compiled(case.name, actual.training)
    assert_same(expected.values, actual.values, relative)
    assert_same({"scores": expected.scores}, {"scores": actual.scores}, relative)


def trains(case: Case) -> bool:
    """Whether a client's round has a fit; another one is solved in closed form."""
    method = method_of(case.name, *case.all_changes)
    assert method is not None
    return any(isinstance(operation, Fit) for operation in trace(method, 1))


def held() -> Iterator[tuple[Case, str]]:
    """Every case with the first way of running engines, and one case of every method with all of them."""
    for case in MATRIX:
        for engine in ENGINES if case in LEADING else list(ENGINES)[:1]:
            yield case, engine


@pytest.mark.parametrize(
    ("case", "engine"),
    [
        pytest.param(
            *pair, id=f"{pair[0].id}-{pair[1]}", marks=[] if in_core(*pair) else [pytest.mark.matrix]
        )
        for pair in held()
    ],
)
def test_an_engine_equals_the_plain_loop(case, engine):
    """In double precision, where a difference is a mistake and not rounding that Adam blew up."""
    if engine == "fused":
        skip_without_compiler()
    refusal = ENGINES[engine].refusal(method_of(case.name, *case.all_changes))
    if refusal is not None:
        pytest.skip(f"{engine}: {refusal}")
    assert_equals_the_loop(case, engine, relative=1e-9, dtype=torch.float64)


@pytest.mark.parametrize(
    ("name", "optimiser"),
    [
        ("fedmf", "adam"),
        ("fedmf", "sgd"),
        ("fedncf", "adam"),
        ("fedncf", "sgd"),
        ("pfedrec", "sgd"),
        ("fedrap", "sgd"),
    ],
)
def test_single_precision_differs_by_rounding_alone(name, optimiser):
    """By no more than a few times what the plain loop itself loses to it: Adam blows up what layers lose."""
    skip_without_compiler()
    case = Case(name, ("batch_size=16", f"optimiser={optimiser}"))
    precise, single = (
        trained(name, *case.all_changes, engine="loop", rounds=case.rounds, dtype=dtype, **FEW).values
        for dtype in (torch.float64, torch.float32)
    )
    lost = max(apart(precise, single).values())
    assert lost < 1e-3
    assert_equals_the_loop(case, "fused", relative=max(1e-5, 5 * lost), dtype=torch.float32)


@pytest.mark.parametrize("name", ["pfedclr", "pfedrec", "fedrap", "fedmf+plgc"])
def test_tables_kept_as_changed_rows_go_on_from_a_stored_state(name):
    """With partial participation, where some clients have rows to keep and others have none."""
    changes = gentle(name, "participation=0.5", "batch_size=16", "local_epochs=2")
    with precision(torch.float64):
        clients = clients_of(planted_blocks(users=12))
        dense, rows, resumed = (
            learner_of(name, clients, *changes, engine=engine) for engine in ("batched", "rows", "rows")
        )
        assert any(isinstance(kept, SparseRowsTensor) for kept in rows.state.client_tensors.values())
        for round_ in range(1, 5):
            dense.train_round(round_)
            rows.train_round(round_)
        resumed.load({key: value.clone() for key, value in rows.tensors().items()})
        for learner in (dense, rows, resumed):
            learner.train_round(5)
        everyone = torch.arange(len(clients))
        for key, kept in dense.state.client_tensors.items():
            whole = kept.whole(everyone)
            assert torch.allclose(
                rows.state.client_tensors[key].whole(everyone), whole, rtol=1e-9, atol=1e-12
            ), key
            assert torch.equal(
                rows.state.client_tensors[key].whole(everyone),
                resumed.state.client_tensors[key].whole(everyone),
            )
        items = torch.arange(clients.items).expand(len(clients), -1)
        assert torch.allclose(
            rows.scores(everyone, items), dense.scores(everyone, items), rtol=1e-9, atol=1e-9
        )


def test_blocks_of_little_memory_are_many(monkeypatch):
    """What is compared with the loop as `blocks` is not one block."""
    from fedrec.federation.engines.batched import engine

    made = []
    monkeypatch.setattr(engine, "Block", lambda *args, of=engine.Block: made.append(args) or of(*args))
    learner = learner_of("fedmf", clients_of(planted_blocks(users=USERS)), "participation=1", engine="blocks")
    learner.train_round(1)
    assert isinstance(learner, Federation)
    assert len(made) >= USERS / 2


@pytest.mark.parametrize("name", ["fedmf", "fedmf+em", "perfedrec"])
def test_of_clients_that_may_stop_early_some_do(name):
    """Where all of them went on, or all stopped, an engine that forgot to stop each by itself would not be seen."""
    (settings,) = (settings for settings in SETTINGS if any("early_stop" in change for change in settings))
    stopping, patient = (
        trained(name, *Case(name, changes).all_changes, rounds=1, dtype=torch.float64, **FEW).values
        for changes in (settings, (*settings, "early_stop=null"))
    )
    kept = [key for key in stopping if key.startswith("kept/")]
    differ = [
        any(not torch.equal(stopping[key][user], patient[key][user]) for key in kept) for user in range(USERS)
    ]
    assert 0 < sum(differ) < USERS


@pytest.mark.matrix
def test_the_core_takes_every_path_that_the_matrix_takes():
    """If it fails, write into `FURTHER` what it prints: cases that take the other paths."""
    assert covering(MATRIX, [*SPOKEN, *FURTHER]) == []


def test_every_method_and_every_plug_in_is_in_the_core_with_every_engine():
    core = {(case.name, engine) for case, engine in held() if in_core(case, engine)}
    assert set(FURTHER) | set(LEADING) <= set(MATRIX)
    assert {case.name for case in LEADING} == set(FEDERATED)
    for engine in ("fused", "batched", "blocks", "rows"):
        names = [parse(name) for name, by in core if by == engine]
        assert {name.backbone for name in names} == {parse(name).backbone for name in FEDERATED}
        assert {name.plugin for name in names} == {parse(name).plugin for name in FEDERATED}
    assert {name for name, engine in core if engine == "threads"} == set(SIMPLE)


@pytest.mark.parametrize(
    ("case", "path"),
    [
        (Case("fedmf", ("optimiser=sgd",)), "by sgd"),
        (Case("fedmf", ("early_stop=0.05",)), "early stop"),
        (Case("fedmf[ldp=0.1]", ()), "noise on uploads"),
        (Case("fedmf[ldp=0.1][ldp_clip=3]", ()), "noise on clipped uploads"),
        (Case("fedmf[combine=touched]", ()), "combined by touched"),
        (Case("fedmf[dp_noise=1]", ()), "guarded gradients"),
        (Case("fedmf[aggregate_from=2]", ()), "clients alone at first"),
        (Case("fedrap", ("weight_decay=0.1",)), "weights decay by sgd"),
        (Case("pfedgraph[penalty=0.5]", ()), "a loss of the step's own"),
        (Case("fedem[merge=dynamic]", ()), "asks for row_sum"),
    ],
    ids=lambda part: part if isinstance(part, str) else part.id,
)
def test_paths_are_read_off_the_settings(case, path):
    """A path that nobody sees would be covered by nobody, and missed by no one."""
    plain = Case(case.name.partition("[")[0], ("weight_decay=0",) if "weight_decay" in case.id else ())
    assert path in case.reached()
    assert path not in plain.reached()


def test_other_tests_have_as_many_threads_as_the_environment_says():
    assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])


def test_no_case_of_the_matrix_is_in_it_twice():
    assert len(set(MATRIX)) == len(MATRIX)


def test_every_composition_that_is_not_compiled_is_a_case():
    """A list that names what nobody trains could not be found wrong."""
    assert set(NOT_COMPILED) <= {case.name for case in MATRIX}


@pytest.mark.parametrize(
    ("name", "training", "said"),
    [
        ("fedmf", {"Q, p": "compiled"}, None),
        ("fedmf", {"Q, p": "there is no C compiler"}, "Q, p is not compiled: there is no C compiler"),
        ("fedmf", {}, "trained nothing"),
        ("fedmf[dp_noise=1]", {"Q, p": NOT_COMPILED["fedmf[dp_noise=1]"]}, None),
        ("fedmf[dp_noise=1]", {"Q, p": "compiled"}, "is listed in NOT_COMPILED"),
        ("fedmf[dp_noise=1]", {"Q, p": "another reason"}, "Q, p is not compiled: another reason"),
    ],
)
def test_a_fit_is_compiled_or_listed(name, training, said):
    found = wrongly_trained(name, training)
    assert (found == []) if said is None else any(said in one for one in found)
