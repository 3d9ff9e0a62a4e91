"""What hides from made-up clients and from a comparison of few: it shows with many clients, late, or behind torch's back."""

import functools
import itertools
import os
from enum import Enum

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.model import Batch, Client, Initial, Loss, Step, Weights, dot, matrix, vector
from fedrec.federation.model.client import GaussianMechanism
from tests.programs.cases import Corpus
from tests.programs.losses import entropies, fitted, scores
from tests.programs.structures import Plain, pulled, squared

HIDDEN = Corpus()
_loss, _structure = HIDDEN.loss, HIDDEN.structure
_MANY = (1, 1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 9, 9)
"""More clients than a comparison looks at."""


# What comes in a later round, behind a number that a loss closes over: the same code, and so the same key


def _later(extra, **facts):
    """A case whose loss has one more term from the third round on, by a factor that was 0 before."""

    class Later(Plain):
        def local_round(self, client: Client) -> None:
            share = 0.0 if client.round_ < 3 else 1.0

            def written(w: Weights, batch: Batch) -> Tensor:
                value = fitted(scores(w, batch), batch)
                return value + share * extra(w, batch) if share > 0 else value

            self.train(client, "Q", "p", loss=written)
            client.upload("Q")

    Later.__name__, Later.__doc__ = extra.__name__, extra.__doc__
    _structure(rounds=3, **facts)(Later)


def late_sort(w, batch):
    """Samples are sorted from the third round on."""
    s = scores(w, batch)
    return (s.sort(-1).values * s.detach()).mean(-1)


def late_deviation(w, batch):
    """The deviation over samples from the third round on."""
    return 0.1 * scores(w, batch).std(-1, unbiased=False)


def late_penalty(w, _batch):
    """A penalty on the vectors of all clients together from the third round on."""
    return 0.1 * w.p.square().sum()


def late_length(w, batch):
    """The number of samples by a shape from the third round on."""
    s = scores(w, batch)
    return batch.sum(s) / s.shape[-1]


def late_value(w, _batch):
    """A value is read into Python from the third round on."""
    return 0.1 * w.p.square().sum() * float(w.p.detach().abs().max())


def late_draw(w, batch):
    """Noise is drawn from the third round on."""
    s = scores(w, batch)
    return batch.mean(torch.rand_like(s) * s)


def late_change_in_place(w, _batch):
    """A parameter is changed in place from the third round on."""
    return (w.p.detach().mul_(0.9) * 0).sum()


def late_training_sum(w, _batch):
    """The sum of training items is read from the third round on."""
    return 0.01 * w.Q.training_sum().square().sum((-1, -2))


_later(late_sort, expected="refused", text="orders, picks or mixes")
_later(late_deviation, expected="refused", text="Write the root")
_later(late_penalty, expected="refused", text="wrong axis", quick=True)
_later(late_length, expected="refused", text="batch.size")
_later(late_value, expected="refused", text="read into Python")
_later(late_draw, expected="refused", text="drawn")
_later(late_change_in_place, expected="refused", text="in place")
_later(late_training_sum)


# A kernel is given numbers as tensors of one number: what asks what they are gets another answer


def _numbered(*values: float, **facts):
    """A case whose loss closes over the next value in every round."""

    def decorated(written):
        class Numbered(Plain):
            def local_round(self, client: Client) -> None:
                self.train(client, "Q", "p", loss=written(values[client.round_ - 1]))
                client.upload("Q")

        Numbered.__name__, Numbered.__doc__ = written.__name__, written.__doc__
        _structure(rounds=len(values), **facts)(Numbered)
        return written

    return decorated


@_numbered(3.0, 1.5, 1.0, quick=True)
def number_in_a_set(number):
    """A number is looked up in a set, and found in the third round."""
    return lambda w, batch: fitted(scores(w, batch) * (0.1 if number in {1.0, 0.5} else 1.0), batch)


@_numbered(3.0, 1.5, 1.0)
def number_as_key(number):
    """A number is looked up in a table with a default, and found in the third round."""
    return lambda w, batch: fitted(scores(w, batch) * {1.0: 0.1}.get(number, 1.0), batch)


@_numbered(3.0, 1.5, by_check=True)
def number_by_its_class(number):
    """`isinstance` asks whether a number is a float."""
    return lambda w, batch: fitted(scores(w, batch) * (number if isinstance(number, float) else 1.0), batch)


@_numbered(3.0, 1.5, 1.0)
def number_in_a_tuple(number):
    """A number is looked up in a tuple."""
    return lambda w, batch: fitted(scores(w, batch) * (0.1 if number in (1.0, 0.5) else 1.0), batch)


@_numbered(3.0, 1.5, 0.5)
def number_as_argument(number):
    """A number is an argument of torch's functions."""

    def loss(w, batch):
        s = scores(w, batch)
        bent = (
            functional.leaky_relu(s, number)
            + functional.softplus(s, beta=number)
            + torch.lerp(s, s * s, number)
        )
        return fitted(bent + functional.threshold(s, number, 0.0) + functional.celu(s, number), batch)

    return loss


@_numbered(1e-300, 1e300, 1.0)
def number_out_of_scale(number):
    """Numbers at which a product vanishes or overflows before it is bounded."""
    return lambda w, batch: fitted(torch.tanh(scores(w, batch) * number), batch)


# What a loss reads behind the back of its key, and what changes in the third round


def _read_by(read, put, **facts):
    """A case whose loss reads a factor by one function, which `local_round` has put there by another one."""

    class Read(Plain):
        def loss(self, w: Weights, batch: Batch) -> Tensor:
            return fitted(scores(w, batch) * read(), batch)

        def local_round(self, client: Client) -> None:
            put(1.0 if client.round_ < 3 else 3.0)
            super().local_round(client)

    Read.__name__, Read.__doc__ = read.__name__, read.__doc__
    _structure(rounds=3, **facts)(Read)


_FACTOR = 1.0


class _Phase(Enum):
    WARM = 1


def environment():
    """A factor in a variable of the environment."""
    return float(os.environ["FEDREC_TEST_FACTOR"])


def imported_in_the_loss():
    """A factor of a module that the loss imports itself."""
    from tests.programs import hidden

    return hidden._FACTOR


def global_by_its_text():
    """A global that is looked up by a text."""
    return globals()["_" + "FACTOR"]


def attribute_of_enum():
    """An attribute of the member of an enum."""
    return _Phase.WARM.factor


def attribute_of_the_base():
    """An attribute of fedrec's own class."""
    return Plain.__mro__[1].factor_of_tests


def _put_environment(value: float) -> None:
    os.environ["FEDREC_TEST_FACTOR"] = str(value)


_read_by(environment, _put_environment, quick=True)
_read_by(imported_in_the_loss, lambda value: globals().update(_FACTOR=value))
_read_by(global_by_its_text, lambda value: globals().update(_FACTOR=value))
_read_by(attribute_of_enum, lambda value: setattr(_Phase.WARM, "factor", value))
_read_by(attribute_of_the_base, lambda value: setattr(Plain.__mro__[1], "factor_of_tests", value))


# What lasts longer than a round


@_structure(rounds=3)
class CountedByModule(Plain):
    """`local_round` counts in its module how often it was called, which a comparison calls, too."""

    counter = itertools.count()

    def __init__(self, settings, items):
        type(self).counter = itertools.count(1)
        super().__init__(settings, items)

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factor, batch)

    def local_round(self, client):
        self.factor = 3.0 / next(type(self).counter)
        super().local_round(client)


@_structure(rounds=3)
class CycleOfItsOwn(Plain):
    """A method goes through a cycle of factors."""

    def __init__(self, settings, items):
        self.cycle = itertools.cycle([3.0, 1.0, 0.5])
        super().__init__(settings, items)

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factor, batch)

    def local_round(self, client):
        self.factor = next(self.cycle)
        super().local_round(client)


@_structure(rounds=3)
class PartialOfPartial(Plain):
    """A loss is made of partial calls whose numbers change."""

    def local_round(self, client):
        def base(w, batch, factor, shift, *, times):
            return fitted(scores(w, batch) * factor + shift * times, batch)

        shifted = functools.partial(base, shift=0.1 * client.round_)
        loss = functools.partial(shifted, factor=1.0 / client.round_, times=2.0 * client.round_)
        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


# Gradients that are changed on their way


class _Clipped(torch.autograd.Function):
    """Bounds the length of the gradient that comes back."""

    @staticmethod
    def forward(_ctx, values):
        return values.clone()

    @staticmethod
    def backward(_ctx, gradient):
        length = gradient.norm()
        return gradient * (0.8 / length) if length > 0.8 else gradient


@_loss(expected="refused", text="Count axes", rows=_MANY, settings={"batch_size": 16}, quick=True)
def clipped_backward(w, batch):
    """The gradient of scores is bounded by `if`, as one gradient: made-up ones are too short to show it."""
    return fitted(_Clipped.apply(scores(w, batch)), batch)


@_loss(expected="refused", text="Count axes", rows=_MANY, settings={"batch_size": 16, "optimiser": "sgd"})
def clipped_by_hook(w, batch):
    """A hook bounds the gradient of scores as one; own items keep the loss from being compiled."""
    s = scores(w, batch) + 0.1 * w.own[batch.items].squeeze(-1)
    s.register_hook(lambda gradient: gradient * (0.8 / gradient.norm()).clamp(max=1.0))
    return fitted(s, batch)


@_loss(by_check=True)
def hook_on_a_parameter(w, batch):
    """A hook on a parameter itself, one more with every mini-batch of the loop."""
    if w.p.requires_grad:
        w.p.register_hook(lambda gradient: gradient * 0.5)
    return fitted(scores(w, batch), batch)


@_loss(by_check=True)
def backward_in_the_loss(w, batch):
    """A loss goes backward itself, whose gradients torch.optim adds."""
    extra = pulled(w, batch)
    if extra.requires_grad:
        extra.sum().backward(retain_graph=True)
    return fitted(scores(w, batch), batch)


@_loss()
def three_inner_steps(w, batch):
    """Three steps on the vector inside of the loss, differentiated through."""
    q, p = w.Q[batch.items], w.p
    for _ in range(3):
        (gradient,) = torch.autograd.grad(fitted(dot(q, p), batch).sum(), p, create_graph=True)
        p = p - 0.3 * gradient
    return fitted(dot(q, p), batch)


# Values that decide without being read


@_structure(
    expected="refused", text="read into Python", rounds=3, settings={"participation": 0.5}, rows=_MANY
)
class DecidedByEquality(Plain):
    """`torch.equal` decides by a vector that is 0 until its client is trained; half of them take part."""

    further = "z"

    def loss(self, w, batch):
        cold = torch.equal(w.z, torch.zeros_like(w.z))
        return fitted(scores(w, batch) * (1.0 if cold else 0.3) + dot(w.Q[batch.items], w.z), batch)

    def local_round(self, client):
        self.train(client, "Q", "p", "z")
        client.upload("Q")


@_loss(expected="refused", text="read into Python")
def label_is_contained(w, batch):
    """`in` asks whether a mini-batch has a positive."""
    s = scores(w, batch)
    return fitted(s if 1.0 in batch.labels else s * 0.1, batch)


# Digits that a compiler may take for nothing


_MAGIC = 1.5 * 2.0**52


@_loss(quick=True)
def rounded_by_a_large_number(w, batch):
    """Numbers are rounded as a large one is added and taken away; a comparison compiles without that liberty."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.1 * batch.mean(((s * 4 + _MAGIC) - _MAGIC) * s)


@_loss(rows=(1, 3, 6, 30), items=60)
def rounded_for_the_largest(w, batch):
    """The same for clients of more than 20 interactions alone, where a comparison cuts them to fewer."""
    s = scores(w, batch)
    rounded = (s * 4 + _MAGIC) - _MAGIC
    return fitted(torch.where(w.interactions.squeeze(-1) > 20, s + (rounded - s).detach(), s), batch)


@_structure(rounds=5)
class RoundedFromRoundFive(Plain):
    """The same from the fifth round on, in a round that is not compared."""

    def local_round(self, client):
        turn = client.round_

        def loss(w, batch):
            s = scores(w, batch)
            return fitted(s, batch) + (batch.mean(((s * 4 + _MAGIC) - _MAGIC) * s) if turn >= 5 else 0.0)

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


# Noise on the gradient of each sample, of losses that are no mean of samples


def _guarded(written: Loss, **facts) -> Loss:
    class SupportsDP(Plain):
        def loss(self, w: Weights, batch: Batch) -> Tensor:
            return written(w, batch)

        def local_round(self, client: Client) -> None:
            noise = {"Q": GaussianMechanism(0.5, 0.1)}
            self.fit(client, Step({"Q": 0.05, "p": 0.05}, "adam", gradient_noise=noise))
            client.upload("Q")

    SupportsDP.__name__, SupportsDP.__doc__ = written.__name__, written.__doc__
    _structure(**(facts or {"by_check": True}))(SupportsDP)
    return written


@_guarded
def guarded_sum(w, batch):
    """A sum over samples."""
    return 0.1 * batch.sum(entropies(scores(w, batch), batch))


@_guarded
def guarded_size(w, batch):
    """A mean divided by the size."""
    return fitted(scores(w, batch), batch) / batch.size.squeeze(-1)


@functools.partial(_guarded, expected="refused", text="noise is added")
def guarded_occurrences(w, batch):
    """Samples weighted by how often their item occurs, which it does more than once in few mini-batches."""
    return batch.mean(entropies(scores(w, batch), batch) / batch.occurrences())


@_guarded
def guarded_logsumexp(w, batch):
    """The logarithm of a sum of exponentials over samples."""
    s = scores(w, batch)
    return batch.logsumexp(s) - batch.mean(s * batch.labels)


@_guarded
def guarded_square_of_mean(w, batch):
    """The square of a mean over samples."""
    s = scores(w, batch)
    return fitted(s, batch) + batch.mean(s).square()


# Losses by which training stops early


def _stopping(written: Loss) -> Loss:
    class Stopping(Plain):
        def loss(self, w: Weights, batch: Batch) -> Tensor:
            return written(w, batch)

    Stopping.__name__, Stopping.__doc__ = written.__name__, written.__doc__
    _structure(settings={"early_stop": 0.05, "local_epochs": 6})(Stopping)
    return written


@_stopping
def stops_below_zero(w, batch):
    """A loss below 0."""
    return fitted(scores(w, batch), batch) - 5.0


@_stopping
def stops_across_zero(w, batch):
    """A loss that crosses 0."""
    return fitted(scores(w, batch), batch) - 0.65


@_structure(settings={"early_stop": 0.05, "local_epochs": 6})
class StopsByTheLastStep(Plain):
    """Two steps with losses of their own."""

    def local_round(self, client):
        steps = Step({"p": 0.05}, "adam", loss=squared), Step({"Q": 0.05}, "adam", loss=pulled)
        self.fit(client, *steps)
        client.upload("Q")


# Sizes


@_structure(settings={"d": 3, "batch_size": 65, "negatives": 2}, rows=(1, 3, 6, 50), items=120)
class PerceptronOfOneSampleMore(Plain):
    """A perceptron on mini-batches of one sample more than a block has."""

    def parameters(self):
        small = Initial("uniform", 0.5)
        return super().parameters() | {
            "a": matrix(3, 16, "shared", small),
            "b": vector(16, "shared", small),
            "o": matrix(16, 1, "private", small),
        }

    def score(self, w, items):
        return (torch.relu((w.Q[items] * w.p) @ w.a + w.b) @ w.o).squeeze(-1)

    def local_round(self, client):
        self.train(client, "Q", "p", "a", "b", "o")
        client.upload("Q", "a", "b")


@_structure(items=4099)
class ItemsAsManyAsMadeUpSamples(Plain):
    """As many items as a made-up mini-batch has samples."""

    def loss(self, w, batch):
        return fitted(scores(w, batch), batch) * (1000 / self.items)


@_loss(rows=(1, 3, 6, 30), items=60, quick=True)
def history_of_a_long_client(w, batch):
    """The history of a client that a comparison cuts to fewer interactions."""
    past = batch.history(3)
    before = (w.Q[past.items] * past.mask.unsqueeze(-1)).mean(-2)
    return fitted(dot(w.Q[batch.items] + before, w.p), batch)


@_structure(expected="refused", text="counts|changes what it reads")
class CountsItsCalls(Plain):
    """A loss that counts how often it was called, and does otherwise from the 300th time on."""

    def __init__(self, settings, items):
        self.calls = []
        super().__init__(settings, items)

    def loss(self, w, batch):
        self.calls.append(1)
        return fitted(scores(w, batch) * (0.1 if len(self.calls) > 300 else 1.0), batch)
