"""Tiles of a CPU: a product of samples with a matrix, and a sum over samples of products, are torch's."""

import pytest
import torch

from fedrec.federation.engines.fused.backend.cpu import tiles
from fedrec.federation.engines.fused.backend.lower import lower_loss
from fedrec.federation.engines.fused.device import CPU as ONE_THREAD
from fedrec.federation.engines.fused.device import H200
from fedrec.federation.engines.fused.trace.loss_graph import trace_loss
from fedrec.native.kernel import Kernel
from fedrec.native.source import KernelSource
from tests.federations import method_of

CPU = torch.device("cpu")
STRIPS = [4, 8, 12, 16, 20]
"""Columns: every number of fours that is done at once, and one that takes two strips."""


def of_tiles(call, made, **tensors):
    """What `call` leaves in `made`; samples are those of `left`, and `right` if it is given."""
    numbers = {name: value for name, value in tensors.items() if name != "made"}
    pointers = [
        f"const real* {name}[64]; for (int j = 0; j < count; j++) {name}[j] = all_{name} + j * {value.shape[1]};"
        for name, value in numbers.items()
        if name != "matrix"
    ]
    source = KernelSource(
        "tiles",
        (
            *(("const real*", name if name == "matrix" else f"all_{name}") for name in numbers),
            ("integer", "count"),
            ("real*", "made"),
        ),
        "\n".join([*pointers, call]),
        tiles.tile_functions(),
    )
    given = {name if name == "matrix" else f"all_{name}": value for name, value in numbers.items()}
    Kernel(source, CPU)(1, **given, count=len(tensors["left"]), made=made)
    return made


def strips(call, columns):
    """Calls for all columns, four times four of them at most at once."""
    return "\n".join(
        call.format(fours=min(4, (columns - first) // 4), first=first) for first in range(0, columns, 16)
    )


@pytest.mark.parametrize("columns", STRIPS)
@pytest.mark.parametrize("samples", [1, 4, 7])
def test_a_product_with_a_matrix_is_torchs(samples, columns):
    left, matrix = torch.randn(samples, 12), torch.randn(12, columns)
    call = strips(
        f"product_{{fours}}(made + {{first}}, left, matrix + {{first}}, count, 12, {columns});", columns
    )
    made = of_tiles(call, torch.full((samples, columns), 9.0), left=left, matrix=matrix)
    assert torch.allclose(made, left @ matrix, atol=1e-5)


@pytest.mark.parametrize("columns", STRIPS)
def test_products_are_added_to_what_samples_before_have_left(columns):
    left, right, before = torch.randn(5, 8), torch.randn(5, columns), torch.randn(8, columns)
    call = strips(f"outer_{{fours}}(made + {{first}}, left, right, {{first}}, count, 8, {columns});", columns)
    made = of_tiles(call, before.clone(), left=left, right=right)
    assert torch.allclose(made, before + left.T @ right, atol=1e-5)


def test_a_perceptrons_products_are_done_by_tiles_on_a_cpu_alone():
    method = method_of("fedncf", "d=8", "layers=16x8")
    trained = list(method.parameters())
    on_cpu, on_gpu = (
        lower_loss(trace_loss(method, method.loss, trained), "s0_", target=target).stages
        for target in (ONE_THREAD, H200)
    )
    assert any(stage.tiles for stage in on_cpu)
    assert not any(stage.tiles for stage in on_gpu)


def test_widths_that_are_no_fours_are_done_sample_by_sample():
    method = method_of("fedncf", "d=3", "layers=6x5")
    stages = lower_loss(trace_loss(method, method.loss, ["mlp.0", "Q"]), "s0_").stages
    assert not any(stage.tiles for stage in stages)
