"""The text for a GPU, run by threads of the CPU as its lanes, against the plain loop."""

from dataclasses import replace
from functools import partial

import pytest
import torch

from fedrec.central import compiled
from fedrec.federation.engines.fused import compiling
from fedrec.federation.engines.fused import engine as fused
from fedrec.federation.engines.fused.device import H200, Device, lanes_for
from fedrec.federation.model.client import Fit
from fedrec.federation.program import trace
from tests.core import core_and
from tests.federations import (
    assert_same,
    clients_of,
    gentle,
    learner_of,
    method_of,
    planted_blocks,
    precision,
    values_of,
)
from tests.lanes import CudaCompiler, LanesKernel

BATCH = 16
CASES = {
    "rows that rest": ("fedmf", ("optimiser=adam",)),
    "rows that shrink": ("fedrap", ("weight_decay=0.1",)),
    "layers, whose sums lanes share out": ("fedncf", ("d=8",)),
    "a sum over training items": ("perfedrec", ()),
    "products and sums by tiles": ("fedmf+plgc", ("d=8", "head=12")),
    "tables that stand side by side": ("fedncf", ("d=4", "layers=8x4")),
}
"""What a kernel has to do, and a method that asks for it."""


SMALL = Device(lane_products=8, register_sums=4, shared_sum=8)
"""Small as tables are here, lanes of it share out the work that an H200's share out of wider tables."""


def made_for_lanes(method, fit, _device, batch, target=SMALL, **_how):
    code = compiling.code_of(method, fit, target=target, batch=batch)
    return compiling.Compiled(code, LanesKernel(code.source, lanes_for(batch)))


def changes_of(case):
    name, changes = CASES[case]
    own = ("d=4", f"batch_size={BATCH}", "local_epochs=2", "participation=1", *changes)
    return name, gentle(name, *own)


def both_ends(case, monkeypatch, target=SMALL):
    """What a round of the plain loop and one of lanes come to."""
    name, changes = changes_of(case)
    monkeypatch.setattr(fused, "compiled_fit", partial(made_for_lanes, target=target))
    ends = []
    with precision(torch.float64):
        for engine in ("loop", "fused"):
            learner = learner_of(name, clients_of(planted_blocks(users=3)), *changes, engine=engine)
            learner.train_round(1)
            ends.append(values_of(learner))
    assert set(learner.engine.notes()["training"].values()) == {"compiled"}
    return ends


@pytest.mark.parametrize("case", CASES)
def test_lanes_together_do_what_the_plain_loop_does(case, monkeypatch):
    assert_same(*both_ends(case, monkeypatch), relative=1e-9)


TILES, LAYERS = "products and sums by tiles", "layers, whose sums lanes share out"


@pytest.mark.parametrize(
    ("bytes_per_lane", "case"), core_and([(0, TILES), (300, LAYERS)], [(0, LAYERS), (300, TILES)])
)
def test_blocks_of_some_samples_make_up_a_mini_batch(bytes_per_lane, case, monkeypatch):
    """Without room blocks lie elsewhere; with little of it they have few samples."""
    target = replace(SMALL, bytes_per_lane=bytes_per_lane, distant_samples=8, samples_step=4)
    assert_same(*both_ends(case, monkeypatch, target), relative=1e-9)


@pytest.mark.parametrize("name", ["mf", "ncf"])
def test_lanes_train_a_model_of_all_users(name, monkeypatch):
    """Samples are about rows of two kinds, of which each has its own chains."""
    monkeypatch.setattr(compiled, "compiled_fit", partial(made_for_lanes, target=H200))
    ends = []
    with precision(torch.float64):
        for engine in ("loop", "fused"):
            changes = ("d=4", f"batch_size={BATCH}", "rate=0.05")
            learner = learner_of(name, clients_of(planted_blocks(users=5)), *changes, engine=engine)
            learner.train_round(1)
            learner.train_round(2)
            ends.append(values_of(learner))
    assert learner.steps.status == "compiled"
    assert_same(*ends, relative=1e-9)


@pytest.mark.parametrize(
    "case",
    core_and(
        [TILES, "rows that shrink"], [case for case in CASES if case not in (TILES, "rows that shrink")]
    ),
)
def test_a_gpu_takes_the_kernel(case):
    """As far as a compiler of the CPU can say; lanes compute every case of it above."""
    name, changes = changes_of(case)
    method = method_of(name, *changes)
    for fit in (operation for operation in trace(method, 1) if isinstance(operation, Fit)):
        source = compiling.code_of(method, fit, target=H200, batch=BATCH).source
        assert CudaCompiler().refusal(source, lanes_for(BATCH)) == ""


def test_a_block_has_a_lane_for_every_sample_as_far_as_blocks_go():
    lanes = [lanes_for(batch) for batch in range(1, 2000)]
    most = max(lanes)
    assert lanes == sorted(lanes)
    assert all(count >= min(batch, most) for batch, count in enumerate(lanes, start=1))
    assert all(count % 32 == 0 and most % count == 0 for count in lanes)


def test_a_block_takes_no_more_memory_than_its_gpu_has():
    name, changes = changes_of("products and sums by tiles")
    method = method_of(name, *changes)
    (fit,) = (operation for operation in trace(method, 1) if isinstance(operation, Fit))
    pools = [
        compiling.code_of(method, fit, target=Device(block_bytes=given), batch=256).source.pool_bytes
        for given in (0, 60_000, 100_000, None)
    ]
    assert pools == sorted(pools)
    assert pools[0] == 0
    assert 0 < pools[1] <= 60_000
