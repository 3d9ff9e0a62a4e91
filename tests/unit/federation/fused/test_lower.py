"""Statements of a loss: how many stages, what is kept between them, which numbers are written into the text."""

import pytest
import torch

from fedrec.federation.engines.fused.backend.loops import c_name, looped
from fedrec.federation.engines.fused.backend.lower import lower_loss
from fedrec.federation.engines.fused.device import CPU, H200
from fedrec.federation.engines.fused.ir.dims import SAMPLES
from fedrec.federation.engines.fused.ir.index import flat
from fedrec.federation.engines.fused.ir.nodes import Leaf
from fedrec.federation.engines.fused.trace.loss_graph import trace_loss
from fedrec.federation.model.weights import dot
from fedrec.native.kernel import Kernel
from fedrec.native.source import KernelSource
from tests.federations import method_of
from tests.lanes import LanesKernel

METHOD = method_of("fedmf", "d=4")


def code(loss, method=METHOD, trained=("Q", "p"), *, gpu=False):
    return lower_loss(trace_loss(method, loss, list(trained)), "s0_", target=H200 if gpu else CPU)


def shares(w, batch):
    """A sum over all samples, and what every sample makes of it."""
    values = torch.exp(dot(w.Q[batch.items], w.p))
    return (values / values.sum()).square().sum()


def test_a_loss_of_one_sum_over_samples_has_one_loop_over_them():
    first, *later = code(METHOD.loss).stages
    assert first.sums == 1 + 4, "the loss, and the gradient by the user's vector"
    assert first.sample
    assert not any(stage.sample or stage.row or stage.together for stage in later)


def test_what_follows_from_a_sum_over_samples_comes_in_the_next_loop():
    made = code(shares)
    assert sum(bool(stage.sample) for stage in made.stages) > 1
    assert made.kept, "a later loop reads what an earlier one computed of each sample"
    assert set(made.kept.values()) == {1}


def test_dear_functions_of_samples_have_a_loop_of_their_own_on_a_cpu():
    """So that many samples are done at once: between the loops of scores and of gradients, which read rows."""
    loops = {gpu: len(code(METHOD.loss, gpu=gpu).stages[0].loops) for gpu in (False, True)}
    assert loops == {False: 3, True: 1}


def test_what_has_no_dear_function_is_one_loop():
    def squares(w, batch):
        return batch.mean((dot(w.Q[batch.items], w.p) - batch.labels).square())

    assert len(code(squares).stages[0].loops) == 1


def test_sums_of_many_numbers_are_shared_out_on_a_gpu_and_nowhere_else():
    wide = method_of("fedmf", "d=64")
    on_cpu, on_gpu = (code(wide.loss, wide, gpu=gpu).stages for gpu in (False, True))
    assert on_cpu[0].sums == 1 + 64
    assert not any(stage.together for stage in on_cpu)
    assert on_gpu[0].sums == 1
    assert on_gpu[0].together
    assert on_gpu[0].before
    assert on_gpu[0].behind


def test_numbers_that_rounds_may_change_are_given_with_each_call():
    def scaled(factor):
        return code(lambda w, batch: factor * METHOD.loss(w, batch))

    first, second = scaled(0.3), scaled(0.7)
    assert [stage.sample for stage in first.stages] == [stage.sample for stage in second.stages]
    assert [stage.client for stage in first.stages] == [stage.client for stage in second.stages]
    assert set(first.constants) == {0.3}
    assert set(second.constants) == {0.7}
    assert scaled(2.0).constants == []


def test_the_same_number_at_two_places_is_two_numbers():
    made = code(lambda w, _: 0.3 * w.p.sum() + 0.3 * w.p.square().sum(), trained=["p"])
    assert len(made.constants) > 1
    assert set(made.constants) == {0.3}


def test_only_what_a_loss_reads_is_asked_for():
    assert set(code(METHOD.loss).leaves) == {
        Leaf("rows", "Q"), Leaf("value", "p"), Leaf("labels"), Leaf("size"),
    }  # fmt: skip
    assert set(code(lambda w, _: w.p.square().sum()).leaves) == {Leaf("value", "p")}


@pytest.mark.parametrize(("name", "expected"), [("Q", "Q"), ("mlp.0.bias", "mlp_0_bias")])
def test_names_are_names_in_c(name, expected):
    assert c_name(name) == expected


def test_places_are_counted_without_samples_and_axes_of_one():
    def place(index, shape, **at):
        return eval(flat(index, shape), {}, at)

    places = [place(("i", "k1", "k2"), (SAMPLES, 3, 5), k1=k1, k2=k2) for k1 in range(3) for k2 in range(5)]
    assert places == list(range(15))
    assert [place(("0", "k1"), (1, 7), k1=k1) for k1 in range(7)] == list(range(7))
    assert place(("i",), (SAMPLES,)) == 0


@pytest.mark.parametrize("by_lanes", [False, True])
@pytest.mark.parametrize(("shape", "index"), [((3, 5), ("k0", "k1")), ((1, 1), ("0", "0"))])
def test_every_element_is_visited_once_by_one_thread_or_by_one_of_the_lanes(shape, index, by_lanes):
    lines = looped(shape, index, [f"visits[{index[0]} * {shape[1]} + {index[1]}] += 1;"], by_lanes=by_lanes)
    source = KernelSource("visit", (("int*", "visits"),), "\n".join(lines))
    visits = torch.zeros(shape, dtype=torch.int32)
    kernel = LanesKernel(source, 32) if by_lanes else Kernel(source, torch.device("cpu"))
    kernel(1, visits=visits)
    assert (visits == 1).all()
