"""Losses of a method of one's own: compiled to the numbers of the plain loop, or refused with operator and line."""

import pytest
import torch
from torch.nn import functional

from fedrec.federation.engines.fused import engine as fused
from fedrec.federation.engines.fused.compiling import Compiled, code_of
from fedrec.federation.engines.fused.device import H200, Device, lanes_for
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model import Initial, Parameter, item_table, matrix, vector
from fedrec.federation.model.client import Fit, Step
from fedrec.federation.model.weights import dot, mean_entropy
from fedrec.federation.program import trace
from fedrec.methods.fedmf import FedMF
from tests.compiled import skip_without_compiler
from tests.core import core_and
from tests.engines import GIB
from tests.federations import (
    assert_same,
    clients_of,
    gentle,
    planted_blocks,
    precision,
    settings_of,
    values_of,
)
from tests.lanes import LanesKernel

SETTINGS = settings_of("fedmf", *gentle("fedmf", "d=4", "local_epochs=2", "batch_size=16", "participation=1"))
SMALL = Initial("uniform", 0.5)


SMALL_GPU = Device(lane_products=8, register_sums=4, shared_sum=8)
"""Small as tables are here, lanes of it share out work."""


def made_for_lanes(method, fit, _device, batch, **_how):
    code = code_of(method, fit, target=SMALL_GPU, batch=batch)
    return Compiled(code, LanesKernel(code.source, lanes_for(batch)))


class OfOnesOwn(FedMF):
    """Matrix factorisation with a bias of items, a number, a vector and a matrix, trained on any loss."""

    def __init__(self, loss, changes=(), rate=None):
        super().__init__({**SETTINGS, **dict(changes)}, 80)
        self.loss = loss
        self.rate = rate

    def parameters(self) -> dict[str, Parameter]:
        return super().parameters() | {
            "b": item_table(self.items, 1, "shared", SMALL),
            "t": vector(1, "private", Initial("constant", 0.4)),
            "h": vector(4, "private", SMALL),
            "M": matrix(4, 4, "shared", SMALL),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def local_round(self, client):
        loss = self.loss if self.rate is None else self.rate(client.round_)
        self.fit(client, self.step(client, dict.fromkeys(self.parameters(), 0.05)), loss=loss)
        client.upload("Q", "b", "M")


def train(method, engine, rounds=2):
    with precision(torch.float64):
        clients = clients_of(planted_blocks(users=5))
        learner = Federation(method(), clients, engine, method().settings, 0)
        for round_ in range(1, rounds + 1):
            learner.train_round(round_)
        return values_of(learner)


def assert_equals_the_loop(method, outcome="compiled", rounds=2):
    """Train by the fused engine and by the loop, a new method each time."""
    skip_without_compiler()
    engine = fused.FusedEngine(GIB)
    found = train(method, engine, rounds)
    assert set(engine.notes()["training"].values()) == {outcome}
    assert_same(train(method, LoopEngine(), rounds), found, relative=1e-9)


def scores(w, batch):
    return dot(w.Q[batch.items], w.p)


def fitted(values, w, batch):
    """The entropy of some scores, and a little of every parameter, so that all of them move."""
    every = 0.1 * (w.b[batch.items].sum(-1) * w.t.sum(-1) + dot(w.Q[batch.items] @ w.M, w.h))
    return mean_entropy(values + every, batch)


def of_scores(function):
    return lambda w, batch: fitted(function(scores(w, batch)), w, batch)


def of_rows(function):
    """A function of each sample's row that gives a row."""
    return lambda w, batch: fitted(dot(function(w.Q[batch.items] * 1.5), w.p), w, batch)


def added_in_place(w, batch):
    values = scores(w, batch) * 2
    values += batch.labels
    values *= w.t.sum(-1)
    values -= 0.25
    values /= 1.5
    return fitted(values, w, batch)


def of_mean(w, batch):
    values = scores(w, batch)
    return fitted(values - batch.mean(values).unsqueeze(-1), w, batch)


def contrasted(w, batch):
    values = scores(w, batch)
    return (
        batch.logsumexp(values)
        - batch.sum(values * batch.labels) / (batch.sum(batch.labels) + 1)
        + fitted(values, w, batch)
    )


def attended(w, batch):
    values = scores(w, batch)
    return fitted(values * batch.softmax(values), w, batch)


def over_dimensions(function):
    """A function of each sample's row that gives a number."""
    return lambda w, batch: fitted(scores(w, batch) + function(w.Q[batch.items]), w, batch)


LEADING = {
    "bias of items": lambda w, batch: fitted(scores(w, batch) + w.b[batch.items].sum(-1), w, batch),
    "softmax": of_rows(lambda row: row.softmax(-1)),
    "slices": of_rows(lambda row: torch.cat((row[..., 2:], row[..., :2] * 2), -1)),
    "in place": added_in_place,
    "clamp by a trained number": lambda w, batch: fitted(
        torch.maximum(scores(w, batch), w.t.sum(-1)), w, batch
    ),
    "power by a trained number": lambda w, batch: fitted(scores(w, batch).sigmoid() ** w.t.sum(-1), w, batch),
    "minus the mean": of_mean,
    "logsumexp and sums of samples": contrasted,
}
REST = {
    "softmax of samples": attended,
    "log_softmax": of_rows(lambda row: row.log_softmax(-1)),
    "two-sided clamp": of_scores(lambda s: s.clamp(-0.3, 0.4)),
    "clamp by tensors": lambda w, batch: fitted(
        scores(w, batch).clamp(min=-w.t.sum(-1), max=w.interactions.sum(-1) / 9), w, batch
    ),
    "clamp by interactions": lambda w, batch: fitted(
        torch.clamp_max(scores(w, batch), w.interactions.sum(-1) / 20), w, batch
    ),
    "power by interactions": lambda w, batch: fitted(
        scores(w, batch).sigmoid() ** (w.interactions.sum(-1) / 9), w, batch
    ),
    "power by the size": lambda w, batch: fitted(scores(w, batch).sigmoid() ** (batch.size / 16), w, batch),
    "power of a number": of_scores(lambda s: 2.0**s),
    "power by whole numbers": of_scores(lambda s: s.sigmoid() ** 3 + s**2 + s.exp() ** -1),
    "rounded down": of_scores(lambda s: s + (s * 4).floor() / 8),
    "floor division": of_scores(lambda s: s + 0.1 * torch.div(s * 8, 3, rounding_mode="floor")),
    "division towards 0": of_scores(lambda s: s + 0.1 * torch.div(s * 8, 3, rounding_mode="trunc")),
    "remainder": of_scores(lambda s: s + torch.remainder(s * 5, 0.7) + torch.fmod(s * 5, 0.6)),
    "straight through": of_scores(lambda s: s + ((s * 4).round() / 4 - s).detach()),
    "factors of sums": of_scores(lambda s: torch.rsub(torch.add(s, s, alpha=-0.5), 1.0, alpha=2)),
    "cast to whole numbers": of_scores(lambda s: s + (s * 4).long() * 0.1),
    "cast to what is true": of_scores(lambda s: s * (s.relu().bool().to(s.dtype) + 0.5)),
    "how many": over_dimensions(lambda row: row.sum(-1) / (row > 0).sum(-1).add(1.0)),
    "logic": of_scores(lambda s: torch.where((s > -0.2) & (s < 0.3) | ~(s < 1), s, s * 2)),
    "where by numbers": of_scores(lambda s: s * torch.where(s > 0, 0.5, 2.0)),
    "constant multiples of the made sizes": of_scores(lambda s: s * 8198 * 1e-4 + s * 4111 * 1e-4),
    "sizes": lambda w, batch: (
        fitted(scores(w, batch), w, batch) + batch.sum(scores(w, batch).square()) / batch.size.sum(-1)
    ),
    "select and narrow": over_dimensions(lambda row: row[..., 1] * row.narrow(-1, 2, 2).sum(-1)),
    "chunk, split and unbind": over_dimensions(
        lambda row: dot(*row.chunk(2, -1)) + row.split([1, 3], -1)[1].sum(-1) + row.unbind(-1)[3]
    ),
    "cosine": lambda w, batch: fitted(functional.cosine_similarity(w.Q[batch.items], w.h, dim=-1), w, batch),
    "deviation and variance": over_dimensions(lambda row: row.std(-1) + row.var(-1, unbiased=False)),
    "layer_norm": of_rows(lambda row: functional.layer_norm(row, (4,))),
    "largest and smallest": over_dimensions(lambda row: row.amax(-1) - row.amin(-1)),
    "norms": over_dimensions(lambda row: row.norm(dim=-1) + row.norm(p=1, dim=-1)),
    "einsum of three": lambda w, batch: fitted(
        torch.einsum("...si,...ij,...kj->...s", w.Q[batch.items], w.M, w.p), w, batch
    ),
    "logsigmoid": of_scores(functional.logsigmoid),
    "leaky_relu": of_scores(functional.leaky_relu),
    "elu": of_scores(functional.elu),
    "gelu": of_scores(functional.gelu),
    "gelu by tanh": of_scores(lambda s: functional.gelu(s, approximate="tanh")),
    "silu": of_scores(functional.silu),
    "softplus": of_scores(lambda s: functional.softplus(s, beta=2, threshold=1)),
    "hardtanh": of_scores(lambda s: functional.hardtanh(s, -0.2, 0.3)),
    "waves": of_scores(lambda s: s.sin() + s.cos() * s.tan().tanh() + s.sinh() / s.cosh() + s.atan()),
    "arcs": of_scores(lambda s: (s.tanh() * 0.9).asin() + (s.tanh() * 0.9).acos()),
    "errors": of_scores(lambda s: s.erf() + s.erfc() * 0.5 + s.expm1() + s.exp2()),
    "logarithms": of_scores(lambda s: (s.square() + 1).log2() + (s.square() + 1).log10()),
    "no gradient": lambda w, batch: mean_entropy(scores(w, batch), batch),
    "detached": lambda w, batch: mean_entropy(
        dot(w.Q[batch.items].detach(), w.p) + w.h.detach().sum(-1), batch
    ),
}
CASES = [*(pytest.param(loss, id=name) for name, loss in LEADING.items())]
CASES += [pytest.param(loss, id=name, marks=pytest.mark.matrix) for name, loss in REST.items()]


@pytest.mark.parametrize("loss", CASES)
def test_a_loss_is_compiled_to_the_numbers_of_the_loop(loss):
    assert_equals_the_loop(lambda: OfOnesOwn(loss))


@pytest.mark.parametrize("name", [*LEADING, *REST])
def test_a_loss_has_a_text_for_a_gpu(name):
    method = OfOnesOwn({**LEADING, **REST}[name])
    (fit,) = (operation for operation in trace(method, 1) if isinstance(operation, Fit))
    assert "void" in code_of(method, fit, target=H200, batch=16).source.for_gpu(64)


def powers(round_):
    """A loss that closes over a number of the round, as an exponent."""
    gamma = 3.0 / round_
    return lambda w, batch: batch.mean(
        scores(w, batch).sigmoid() ** gamma * functional.softplus(scores(w, batch))
    )


def branches(round_):
    """A loss whose way follows from a number of the round."""
    strength = 0.5 - 0.2 * round_
    return lambda w, batch: fitted(scores(w, batch) * (strength if strength > 0 else 2.0), w, batch)


@pytest.mark.parametrize("rate", [powers, branches])
def test_a_number_that_changes_from_round_to_round_is_the_rounds_own(rate):
    assert_equals_the_loop(lambda: OfOnesOwn(None, rate=rate), rounds=3)


@pytest.mark.parametrize("optimiser", ["sgd", "adam"])
def test_what_a_loss_does_not_use_stays_though_its_weight_decays(optimiser):
    class Unused(OfOnesOwn):
        def local_round(self, client):
            decay = dict.fromkeys(self.parameters(), 0.3)
            step = Step(dict.fromkeys(self.parameters(), 0.05), optimiser, decay)
            self.fit(client, step, loss=lambda w, batch: mean_entropy(scores(w, batch), batch))
            client.upload("Q", "b", "M")

    assert_equals_the_loop(lambda: Unused(None))


def test_moments_that_are_kept_count_the_steps_of_their_own_parameter():
    """In the first round the loss does not use `h`, whose Adam then begins a round later."""

    class Later(OfOnesOwn):
        def local_round(self, client):
            step = Step({"Q": 0.05, "p": 0.05, "h": 0.05}, "adam", keep_state=True)
            with_h = client.round_ > 1
            self.fit(client, step, loss=used if with_h else unused)
            client.upload("Q")

    def unused(w, batch):
        return mean_entropy(scores(w, batch), batch)

    def used(w, batch):
        return mean_entropy(scores(w, batch) + dot(w.Q[batch.items], w.h), batch)

    assert_equals_the_loop(lambda: Later(None), rounds=3)


def test_whole_tables_that_the_first_round_did_not_ask_for_are_whole():
    class WholeFromRoundTwo(OfOnesOwn):
        def local_round(self, client):
            penalty = 0.01 if client.round_ > 1 else 0.0
            self.fit(client, self.step(client, {"Q": 0.05, "p": 0.05}), loss=later if penalty else self.loss)
            client.upload("Q")

    def later(w, batch):
        return mean_entropy(scores(w, batch), batch) + 0.01 * w.Q.whole().square().sum((-1, -2))

    assert_equals_the_loop(lambda: WholeFromRoundTwo(lambda w, batch: mean_entropy(scores(w, batch), batch)))


@pytest.mark.parametrize(
    "name", core_and(["logsumexp and sums of samples", "floor division"], ["softmax of samples"])
)
def test_lanes_of_a_gpu_compute_what_the_loop_does(name, monkeypatch):
    monkeypatch.setattr(fused, "compiled_fit", made_for_lanes)
    assert_equals_the_loop(lambda: OfOnesOwn({**LEADING, **REST}[name]), rounds=1)


@pytest.mark.parametrize("changes", [{"d": 1}, {"d": 1, "optimiser": "sgd"}])
@pytest.mark.parametrize("lanes", [False, True])
def test_tables_and_vectors_one_number_wide_are_compiled(changes, lanes, monkeypatch):
    if lanes:
        monkeypatch.setattr(fused, "compiled_fit", made_for_lanes)

    def method():
        return FedMF({**SETTINGS, **changes}, 80)

    assert_equals_the_loop(method)
