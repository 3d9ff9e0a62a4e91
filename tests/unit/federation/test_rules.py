"""The rules of losses, scores, rewrites and programs: what breaks one is refused with its line and what to write."""

# ruff: noqa: ARG005 - what is refused need not read all that it is given

import random
import re

import pytest
import torch
from torch.nn import functional

from fedrec.errors import FederationError
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.federation import Federation
from fedrec.federation.model.client import GaussianMechanism, Step, UploadTransform
from fedrec.federation.model.parameters import Initial, item_table, matrix, vector
from fedrec.federation.model.weights import dot, mean_entropy
from fedrec.federation.program import needs_of, trace, trace_after_aggregation
from fedrec.federation.rules.losses import Rules
from fedrec.methods.fedmf import FedMF
from tests.by_hand import clients_with
from tests.contract.matrix import FEDERATED, VARIANTS
from tests.federations import method_of, settings_of

TRAINED = ("Q", "p", "b", "h")
NORMAL = Initial("normal", 1.0)
SINGLE = torch.eye(4, 3, dtype=torch.float32)


class Model(FedMF):
    """FedMF with a bias, a matrix, a table of its own and one on the server."""

    def parameters(self):
        return super().parameters() | {
            "b": vector(1, "private", NORMAL),
            "h": matrix(4, 3, "private", NORMAL),
            "mine": item_table(self.items, 4, "local", NORMAL),
            "S": matrix(self.items, self.items, "server", NORMAL),
        }


MODEL = Model(settings_of("fedmf", "d=4"), 20)


def s(w, batch):
    return dot(w.Q[batch.items], w.p)


def rows(w, batch):
    return w.Q[batch.items]


def changed(tensor, value):
    tensor.add_(1)
    return value


ALLOWED = {
    "the mean": lambda w, b: b.mean(s(w, b)),
    "the mean of what is one for all": lambda w, b: b.mean(w.b.squeeze(-1)),
    "a sum by the size": lambda w, b: b.sum(s(w, b)) / b.size.squeeze(-1),
    "a logarithm of exponentials": lambda w, b: b.logsumexp(s(w, b)),
    "shares": lambda w, b: b.sum(b.softmax(s(w, b)) * b.labels),
    "differences from the mean": lambda w, b: b.mean((s(w, b) - b.mean(s(w, b)).unsqueeze(-1)).square()),
    "a whole table": lambda w, b: b.mean(s(w, b)) + w.Q.whole().square().sum((-1, -2)),
    "a sum of what is 0 where it must not count": lambda w, b: (s(w, b) * b.distinct()).sum(-1),
    "a maximum of what is masked": lambda w, b: s(w, b).masked_fill(b.distinct() == 0, -torch.inf).amax(-1),
    "a product that is masked": lambda w, b: (
        ((rows(w, b) * b.distinct().unsqueeze(-1)).mT @ rows(w, b)).square().sum((-1, -2))
    ),
    "the rank": lambda w, b: b.mean(s(w, b)) / rows(w, b).shape[-1],
    "a matrix": lambda w, b: b.mean((rows(w, b) @ w.h).square().sum(-1)),
    "a slice of the rank": lambda w, b: b.mean(rows(w, b)[..., :2].sum(-1)),
    "a change in place of what it made": lambda w, b: b.mean(s(w, b).mul_(2)),
    "a number of its own": lambda w, b: b.mean(s(w, b)) * torch.tensor(2.0).item(),
    "a matrix of its own in single precision": lambda w, b: b.mean((rows(w, b) @ SINGLE).square().sum(-1)),
    "a gradient": lambda w, b: (
        torch.autograd.grad(b.mean(s(w, b)).sum(), w.p, create_graph=True)[0].square().sum((-1, -2))
    ),
    "tables that are stacked": lambda w, b: b.mean(torch.stack([s(w, b), 2 * s(w, b)]).mean(0)),
    "the sum of training items": lambda w, b: b.mean(dot(rows(w, b), w.Q.training_sum())),
    "what is mapped": lambda w, b: b.mean(torch.vmap(lambda row: row.sum(-1))(rows(w, b))),
    "what a guard makes of it": lambda w, b: b.mean(s(w, b) / w.interactions.squeeze(-1)),
}


@pytest.mark.parametrize("loss", ALLOWED.values(), ids=ALLOWED.keys())
def test_what_every_engine_computes_alike_is_allowed(loss):
    state = torch.get_rng_state()
    rules = Rules(MODEL)
    rules.check_loss(loss, [name for name in TRAINED if name != "S"])
    assert rules.whole_tables == (loss is ALLOWED["a whole table"])
    assert torch.equal(state, torch.get_rng_state())
    assert torch.get_default_dtype() == torch.float32


REFUSED = {
    "a sum": (lambda w, b: s(w, b).sum(-1), "sum over the samples.*Write batch.sum"),
    "a sum of all": (lambda w, b: s(w, b).sum(), "Write batch.sum"),
    "a mean": (lambda w, b: s(w, b).mean(), "Write batch.mean"),
    "exponentials": (lambda w, b: s(w, b).logsumexp(0), "Write batch.logsumexp"),
    "shares": (lambda w, b: b.mean(s(w, b).softmax(-1) * b.labels), "Write batch.softmax"),
    "a maximum": (lambda w, b: s(w, b).amax(-1), "amax orders, picks or mixes the samples"),
    "whether any": (lambda w, b: b.mean(s(w, b)) * (b.labels > 0).any(), "any orders, picks or mixes"),
    "a deviation": (lambda w, b: s(w, b).std(), "Write the root of batch.mean"),
    "an order": (lambda w, b: b.mean(s(w, b).sort(-1).values * b.labels), "sort orders"),
    "sums so far": (lambda w, b: b.mean(s(w, b).cumsum(-1)), "cumsum orders"),
    "the reverse": (lambda w, b: b.mean(s(w, b).flip(-1) * b.labels), "flip orders"),
    "the first sample": (lambda w, b: s(w, b)[0], "getitem orders, picks"),
    "differences": (lambda w, b: b.mean(s(w, b)) + s(w, b).diff().square().sum(), "diff orders"),
    "a product over samples": (lambda w, b: (rows(w, b).mT @ rows(w, b)).sum((-1, -2)), "matmul sums over"),
    "all pairs": (lambda w, b: b.mean((rows(w, b) @ rows(w, b).mT).logsumexp(-1)), "Write batch.logsumexp"),
    "a sum of products": (lambda w, b: torch.einsum("nd,nd->", rows(w, b), rows(w, b)), "einsum sums over"),
    "samples in a row": (lambda w, b: rows(w, b).flatten().square().sum(), "flatten orders, picks or mixes"),
    "some samples": (lambda w, b: s(w, b)[b.labels > 0].sum(), "getitem orders, picks"),
    "a length": (lambda w, b: b.mean(s(w, b)) * s(w, b).shape[-1], "given to mul.*write batch.size"),
    "a number of labels": (lambda w, b: b.mean(s(w, b)) / len(b.labels), "write batch.size"),
    "places": (lambda w, b: b.mean(s(w, b) * torch.arange(len(b.labels))), "given to arange"),
    "if by shape": (
        lambda w, b: b.mean(s(w, b)) if b.labels.shape[-1] > 9 else b.mean(2 * s(w, b)),
        "Python goes another way",
    ),
    "if there is one": (
        lambda w, b: b.mean(s(w, b)) if len(b.labels) > 1 else b.mean(s(w, b).relu()),
        "Python goes another way",
    ),
    "a loop over samples": (lambda w, b: sum(one for one in s(w, b)), "Python goes another way"),
    "if by value": (lambda w, b: b.mean(s(w, b) if w.p.sum() > 0 else -s(w, b)), r"torch\.where"),
    "an item": (lambda w, b: b.mean(s(w, b)) * w.p.sum().item(), r"\(item\).*torch\.where"),
    "a float": (lambda w, b: b.mean(s(w, b)) * float(w.p.sum()), r"\(float\)"),
    "a list": (lambda w, b: b.mean(s(w, b)) * b.labels.tolist()[0], r"\(tolist\)"),
    "dropout": (lambda w, b: b.mean(functional.dropout(s(w, b))), r"random numbers are drawn \(bernoulli"),
    "noise": (lambda w, b: b.mean(s(w, b) + torch.randn_like(s(w, b))), "random numbers are drawn"),
    "a random number": (lambda w, b: b.mean(s(w, b)) * torch.rand(()), "random numbers are drawn"),
    "a random number of Python": (lambda w, b: b.mean(s(w, b)) * random.random(), "draws nothing at random"),
    "a squared norm": (
        lambda w, b: b.mean(s(w, b)) + w.Q.squared_norm().squeeze(),
        r"in `derived`.*whole\(\)",
    ),
    "a sum of rows": (
        lambda w, b: b.mean(dot(rows(w, b), w.Q.row_sum())),
        r"row_sum\(\) is not available in a",
    ),
    "a parameter in place": (lambda w, b: changed(w.p.detach(), b.mean(s(w, b))), "add_ changes in place"),
    "rows in place": (lambda w, b: changed(rows(w, b).detach(), b.mean(s(w, b))), "add_ changes in place"),
    "the back door": (lambda w, b: changed(w.p.data, b.mean(s(w, b))), "data changes the path of gradients"),
    "no mean": (lambda w, b: s(w, b), r"the shape \(7,\), of 7 samples: one number per sample"),
    "an axis too many": (lambda w, b: b.mean(s(w, b)).unsqueeze(-1), r"the shape \(1,\)"),
    "a size": (lambda w, b: b.mean(s(w, b)) * b.size, r"the shape \(1,\)"),
    "what is constant": (lambda w, b: b.mean(b.labels), "does not depend on what its step trains"),
    "no tensor": (lambda w, b: 1.0, "float in the place of a tensor"),
    "a score of the wrong shape": (lambda w, b: mean_entropy(rows(w, b) @ w.p.mT, b), "Target size"),
    "a mean of rows": (lambda w, b: b.mean(rows(w, b)), r"batch.mean is given the shape \(7, 4\)"),
    "a sum of one": (lambda w, b: b.sum(w.b.squeeze(-1)), r"batch.sum is given the shape \(1,\)"),
    "the second axis": (lambda w, b: b.mean((rows(w, b) * w.p).sum(1)), "count axes from the end"),
    "a transpose": (lambda w, b: b.mean((w.p @ rows(w, b).T).squeeze(0)), "Count axes from the end"),
    "a column": (lambda w, b: b.mean(rows(w, b)[:, 0]), "count axes from the end"),
    "a sum over a vector": (lambda w, b: b.mean(s(w, b)) + w.p.square().sum(), "sum takes the wrong axis"),
    "a sum over a table": (lambda w, b: b.mean(s(w, b)) + w.Q.whole().square().sum(), "sum takes the wrong"),
    "a unit length": (
        lambda w, b: b.mean(functional.normalize(rows(w, b), dim=1).sum(-1)),
        "normalize takes the wrong axis",
    ),
    "what is unknown": (
        lambda w, b: b.mean(s(w, b) * w.minee),
        r"clients have no value w\.minee.*Did you mean 'mine'.*They have: ",
    ),
    "what has no attribute": (
        lambda w, b: b.mean(s(w, b) * w["mlp.0"]),
        r"clients have no value w\.mlp\.0",
    ),
    "what is on the server": (lambda w, b: b.mean(s(w, b)) + w.S.sum(), r"clients have no value w\.S"),
    "a gradient of what fills up": (
        lambda w, b: b.mean(s(w, b)) + (s(w, b) - s(w, b).detach()).sum(-1),
        "filled up with samples that must not count",
    ),
    "arithmetic of items": (lambda w, b: b.mean(w.Q[(b.items + 1) % 20].sum(-1)), "only looks up rows"),
    "a tensor by items": (lambda w, b: b.mean(s(w, b) * torch.ones(20)[b.items]), "only looks up rows"),
    "other rows": (lambda w, b: b.mean(s(w, b)) + w.Q[torch.arange(3)].sum(), "by other items than those"),
    "shapes that do not fit": (lambda w, b: b.mean(rows(w, b) @ w.p), "cannot be multiplied.*of 7 samples"),
}


@pytest.mark.parametrize(("loss", "said"), REFUSED.values(), ids=REFUSED.keys())
def test_what_engines_would_compute_otherwise_is_refused(loss, said):
    state = torch.get_rng_state()
    with pytest.raises(FederationError, match=rf"^<lambda> \(test_rules\.py:\d+\): .*{said}"):
        Rules(MODEL).check_loss(loss, TRAINED)
    assert torch.equal(state, torch.get_rng_state())


class Summed(FedMF):
    """Forgets that mini-batches are filled up."""

    def loss(self, w, batch):
        return s(w, batch).sum(-1)


@pytest.mark.parametrize("engine", ["loop", "batched", "fused"])
def test_every_engine_refuses_alike_and_names_the_line(engine):
    settings = settings_of("fedmf", "d=2")
    line = Summed.loss.__code__.co_firstlineno + 1
    with pytest.raises(
        FederationError, match=rf"^Summed\.loss \(test_rules\.py:{line}\): sum over the samples"
    ):
        Federation(
            Summed(settings, 8),
            clients_with([[0], [1]], items=8),
            engine_named(engine, 2**30),
            settings,
            seed=0,
        ).train_round(1)


# Whatever is trained is held to the rules, so that those trained in `make test` are not repeated here.
@pytest.mark.matrix
@pytest.mark.parametrize("name", [*FEDERATED, *VARIANTS])
def test_every_method_and_variant_keeps_the_rules(name):
    method = method_of(name, items=12)
    for round_ in (1, 3):
        for program in (trace(method, round_), trace_after_aggregation(method, round_)[0]):
            needs_of(program, method)


def rewriting(rows_of):
    class Rewriting(Model):
        def local_round(self, client):
            client.rewrite("mine", rows_of)

    return Rewriting(MODEL.settings, 20)


@pytest.mark.parametrize(
    ("rows_of", "said"),
    [
        (
            lambda w, items: w.Q[items] - w.mine.training_sum(),
            r"training_sum\(\) is not available in a rewrite",
        ),
        (lambda w, items: w.Q[items] / len(w.Q.whole()), r"whole\(\) is not available in a rewrite"),
        (lambda w, items: w.Q[items] - w.Q[items].mean(-2, keepdim=True), "mean over the samples"),
        (lambda w, items: w.Q[items].sum(-1), r"it gives the shape \(7,\).*\(7, 4\)"),
        (lambda w, items: w.Q[items + 1], "only looks up rows of tables"),
        (lambda w, items: w.Q[items] / w.Q[items].norm(dim=1, keepdim=True), "Count axes from the end"),
    ],
)
def test_a_rewrite_makes_rows_of_rows(rows_of, said):
    method = rewriting(rows_of)
    with pytest.raises(FederationError, match=said):
        needs_of(trace(method, 1), method)
    allowed = rewriting(lambda w, items: w.Q[items] * w.held + w.mine[items])
    assert not needs_of(trace(allowed, 1), allowed).whole_tables


def test_a_score_is_one_number_per_item_and_may_read_the_numbers_of_items():
    class Scored(Model):
        scoring = staticmethod(lambda w, items: dot(w.Q[(items + 1) % 20], w.p))

        def score(self, w, items):
            return self.scoring(w, items)

    Rules(Scored(MODEL.settings, 20)).check_score()
    for scoring, said in (
        (lambda w, items: w.Q[items] @ w.p.mT, r"Scored\.score.*the shape \(7, 1\)"),
        (lambda w, items: dot(w.Q[items], w.g), r"clients have no value w\.g"),
        (lambda w, items: (w.Q[items] * w.p).sum(1), "Count axes from the end"),
    ):
        Scored.scoring = staticmethod(scoring)
        with pytest.raises(FederationError, match=said):
            Rules(Scored(MODEL.settings, 20)).check_score()


@pytest.mark.parametrize(
    ("derived", "said"),
    [
        (
            lambda w: {"mean": w.Q.row_sum().sum(0)},
            r"Derives\.derived.*'mean' is another for several clients",
        ),
        (lambda w: {"p": w.Q.row_sum()}, "gives 'p', the name of another value"),
        (lambda w: {"held": w.Q.row_sum()}, "gives 'held'"),
        (lambda w: {"mean": w.g}, r"clients have no value w\.g"),
    ],
)
def test_derived_numbers_keep_to_their_clients_and_names(derived, said):
    class Derives(Model):
        def derived(self, w):
            return derived(w)

    with pytest.raises(FederationError, match=said):
        Rules(Derives(MODEL.settings, 20)).check_loss(ALLOWED["the mean"], TRAINED)


def test_derived_numbers_may_ask_for_whole_tables():
    class Derives(Model):
        def derived(self, w):
            return {"gram": w.Q.whole().mT @ w.Q.whole()}

    method = Derives(MODEL.settings, 20)
    assert needs_of(trace(method, 1), method).whole_tables


def asked_for(work, *names):
    class Asking(Model):
        def parameters(self):
            return super().parameters() | {name: vector(2, "private", NORMAL) for name in names}

        def local_round(self, client):
            work(self, client)

    return Asking(MODEL.settings, 20)


class Half(UploadTransform):
    label = "half"

    def of_one(self, table):
        return table / 2

    def weighted_sum(self, tables, weights):
        raise NotImplementedError


GUARD = GaussianMechanism(1.0, 1.0)
MISTAKES = {
    "no step": (lambda m, c: m.fit(c), "fits without a step"),
    "nothing trained": (lambda m, c: m.fit(c, Step({}, "sgd")), "a step that trains nothing"),
    "an optimiser": (
        lambda m, c: m.fit(c, Step({"Q": 1}, "adamw")),
        "'adamw'.*Did you mean 'adam'.*adam, sgd",
    ),
    "epochs": (lambda m, c: m.fit(c, m.step(c, {"Q": 1}), epochs=-1), "fits for -1 epochs"),
    "a rate": (lambda m, c: m.fit(c, m.step(c, {"q": 1})), "trains 'q', which is none of its parameters"),
    "the server's": (lambda m, c: m.fit(c, m.step(c, {"S": 1})), "trains 'S', which is on the server"),
    "decay": (
        lambda m, c: m.fit(c, m.step(c, {"Q": 1}, {"p": 1})),
        "decays the weights of 'p', which its fit does not",
    ),
    "unknown decay": (
        lambda m, c: m.fit(c, m.step(c, {"Q": 1}, {"q": 1})),
        "decays the weights of 'q', which is none",
    ),
    "a guard": (
        lambda m, c: m.fit(c, m.step(c, {"p": 1}, gradient_noise={"Q": GUARD})),
        "guards the gradient of 'Q', which its fit does not train",
    ),
    "a guard of what is not used": (
        lambda m, c: m.fit(c, m.step(c, {"p": 1, "mine": 1}, gradient_noise={"mine": GUARD})),
        r"does not depend on what its step trains \(mine\)",
    ),
    "an upload": (
        lambda m, c: c.upload("q"),
        "uploads 'q', which is none of its parameters. Did you mean 'Q'",
    ),
    "a shape": (lambda m, c: c.upload("mine", into="S"), r"another shape: \(20, 4\) and \(20, 20\)"),
    "a function of a vector": (
        lambda m, c: c.upload("p", transform=Half()),
        "a function of 'p', which is no table",
    ),
    "a rewrite": (lambda m, c: c.rewrite("q", lambda w, items: w.Q[items]), "rewrites 'q', which is none"),
}


@pytest.mark.parametrize(("work", "said"), MISTAKES.values(), ids=MISTAKES.keys())
def test_what_cannot_be_done_is_refused_when_it_is_recorded(work, said):
    method = asked_for(work)
    with pytest.raises(FederationError, match=said):
        needs_of(trace(method, 1), method)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (("held",), r"has a parameter 'held', but w\.held has another meaning"),
        (("interactions",), "has a parameter 'interactions'"),
        (("items",), "has a parameter 'items'"),
        (("a.b", "a_b"), "'a.b' and 'a_b', which have the same name in compiled code"),
    ],
)
def test_names_of_parameters_mean_nothing_else(names, said):
    with pytest.raises(FederationError, match=re.escape(said) if "." not in said else said):
        trace(asked_for(lambda m, c: None, *names), 1)
    trace(asked_for(lambda m, c: None, "int", "größe", "mlp.0", "mlp.0.bias"), 1)


def test_a_fit_of_no_epochs_is_no_fit():
    method = asked_for(lambda m, c: (m.fit(c, m.step(c, {"Q": 1}), epochs=0), c.upload("Q")))
    assert [type(operation).__name__ for operation in trace(method, 1)] == ["Upload"]
