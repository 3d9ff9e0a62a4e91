"""A loss that reads other values in every round trains as the plain loop does, by every engine, resumed or not."""

from functools import cache, partial, wraps

import numpy as np
import pytest
import torch

from fedrec.errors import FederationError
from fedrec.federation.engines.batched.engine import BatchedEngine
from fedrec.federation.engines.fused.engine import FusedEngine
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model.server_rule import ServerRule
from fedrec.federation.model.weights import mean_entropy
from fedrec.methods.fedmf import FedMF
from tests.federations import apart, clients_of, gentle, planted_blocks, settings_of, values_of

GIB = 2**30
ROUNDS = 3
STRENGTH = 1.0
HELD = {"strength": 1.0}
ENGINES = {"loop": LoopEngine, "batched": lambda: BatchedEngine(GIB), "fused": lambda: FusedEngine(GIB)}
pytestmark = pytest.mark.usefixtures("double_precision")


def strength_of(round_):
    return 3.0 / round_


class Changing(FedMF):
    """The loss is scaled by a number that changes with the round, and is kept in some place."""

    def local_round(self, client):
        self.keep(strength_of(client.round_))
        super().local_round(client)

    def keep(self, strength):
        raise NotImplementedError

    def strength(self):
        raise NotImplementedError

    def loss(self, w, batch):
        return mean_entropy(self.score(w, batch.items), batch) * self.strength()


class AttributeFloat(Changing):
    def keep(self, strength):
        self.kept = strength

    def strength(self):
        return self.kept


class AttributeList(Changing):
    def __init__(self, settings, items):
        super().__init__(settings, items)
        self.kept = [0.0]

    def keep(self, strength):
        self.kept[0] = strength

    def strength(self):
        return self.kept[0]


class AttributeTuple(Changing):
    def keep(self, strength):
        self.kept = (1, (strength,))

    def strength(self):
        return self.kept[1][0]


class AttributeDict(AttributeList):
    def __init__(self, settings, items):
        super().__init__(settings, items)
        self.kept = {0: 0.0}


class AttributeTensor(Changing):
    def keep(self, strength):
        self.kept = torch.tensor(strength)

    def strength(self):
        return float(self.kept)


class TensorWrittenTo(AttributeTensor):
    def __init__(self, settings, items):
        super().__init__(settings, items)
        self.kept = torch.zeros(())

    def keep(self, strength):
        self.kept.fill_(strength)


class AttributeArray(AttributeTensor):
    def __init__(self, settings, items):
        super().__init__(settings, items)
        self.kept = np.zeros(3)

    def keep(self, strength):
        self.kept[1] = strength

    def strength(self):
        return float(self.kept[1])


class TensorOverArray(AttributeArray):
    """Torch does not see what numpy writes."""

    def __init__(self, settings, items):
        super().__init__(settings, items)
        self.seen = torch.from_numpy(self.kept)

    def strength(self):
        return float(self.seen[1])


class Box:
    def __init__(self):
        self.inner = None


class Slotted:
    __slots__ = ("strength",)


class NestedObject(Changing):
    def __init__(self, settings, items):
        super().__init__(settings, items)
        self.box = Box()
        self.box.inner = Slotted()
        self.box.itself = self.box

    def keep(self, strength):
        self.box.inner.strength = strength

    def strength(self):
        return self.box.inner.strength


class InSettings(Changing):
    def __init__(self, settings, items):
        super().__init__(dict(settings), items)

    def keep(self, strength):
        self.settings["strength"] = strength

    def strength(self):
        return self.settings["strength"]


class ClassAttribute(Changing):
    kept = 1.0

    def keep(self, strength):
        type(self).kept = strength

    def strength(self):
        return self.kept


class ClassList(ClassAttribute):
    kept = [1.0]  # noqa: RUF012 - what is tried

    def keep(self, strength):
        self.kept[:] = [strength]

    def strength(self):
        return self.kept[0]


class GlobalNumber(Changing):
    def keep(self, strength):
        globals()["STRENGTH"] = strength

    def strength(self):
        return STRENGTH


def from_globals():
    return HELD["strength"]


class GlobalDict(Changing):
    def keep(self, strength):
        HELD["strength"] = strength

    def strength(self):
        return from_globals()


def of_default(kept={"strength": 1.0}):  # noqa: B006 - what is tried
    return kept["strength"]


class MutableDefault(Changing):
    def keep(self, strength):
        of_default.__defaults__[0]["strength"] = strength

    def strength(self):
        return of_default()


class ByGenerator(Changing):
    """What cannot be taken apart is read anew each time."""

    def keep(self, strength):
        self.numbers = (strength for _ in range(10**9))

    def strength(self):
        return next(self.numbers)


class Closing(FedMF):
    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": self.item_rate(), "p": self.settings["rate"]}),
                 loss=self.loss_of(strength_of(client.round_)))  # fmt: skip
        client.upload("Q")

    def scaled(self, w, batch, strength):
        return mean_entropy(self.score(w, batch.items), batch) * strength


class Closure(Closing):
    def loss_of(self, strength):
        return lambda w, batch: self.scaled(w, batch, strength)


class ClosurePower(Closing):
    def loss_of(self, strength):
        def loss(w, batch):
            scores = self.score(w, batch.items)
            return batch.mean(torch.sigmoid(scores) ** strength * torch.nn.functional.softplus(scores))

        return loss


class ClosureOfOne(Closing):
    def loss_of(self, strength):
        one = torch.tensor([strength])
        return lambda w, batch: batch.mean(torch.sigmoid(self.score(w, batch.items)) ** one)


class ClosureOverList(Closing):
    def loss_of(self, strength):
        kept = [strength]
        return lambda w, batch: self.scaled(w, batch, kept[0])


class NestedClosure(Closing):
    def loss_of(self, strength):
        def inner():
            return strength

        @wraps(inner)
        def outer():
            return inner()

        return lambda w, batch: self.scaled(w, batch, outer())


class ByPartial(Closing):
    def loss_of(self, strength):
        return partial(self.scaled, strength=strength)


class Callable:
    def __init__(self, method, strength):
        self.method, self.strength = method, strength

    def __call__(self, w, batch):
        return self.method.scaled(w, batch, self.strength)


class ByCallable(Closing):
    def loss_of(self, strength):
        return Callable(self, strength)


class Recursive(Closing):
    """A closure over itself: its number is not lifted."""

    def loss_of(self, strength):
        def power(times):
            return 1.0 if times == 0 else strength * power(times - 1)

        return lambda w, batch: self.scaled(w, batch, power(1))


class WholeFromRoundTwo(Closing):
    """Whole tables are asked for from the second round on."""

    def loss_of(self, strength):
        whole = strength < 3

        def loss(w, batch):
            value = self.scaled(w, batch, strength)
            return value + 0.01 * (w.Q.whole() ** 2).sum((-1, -2)) if whole else value

        return loss


class WholeInSome(Closing):
    """Whole tables are asked for in the second round alone."""

    def loss_of(self, strength):
        whole = strength == strength_of(2)

        def loss(w, batch):
            value = self.scaled(w, batch, strength)
            return value + 0.01 * (w.Q.whole() ** 2).sum((-1, -2)) if whole else value

        return loss


CASES = [
    AttributeFloat, AttributeList, AttributeTuple, AttributeDict, AttributeTensor, TensorWrittenTo, AttributeArray,
    TensorOverArray, NestedObject, InSettings, ClassAttribute, ClassList, GlobalNumber, GlobalDict, MutableDefault,
    ByGenerator, Closure, ClosurePower, ClosureOfOne, ClosureOverList, NestedClosure, ByPartial, ByCallable,
    Recursive, WholeFromRoundTwo, WholeInSome,
]  # fmt: skip
SETTINGS = settings_of("fedmf", *gentle("fedmf", "optimiser=sgd", "batch_size=16", "local_epochs=2", "d=4"))
CLIENTS = clients_of(planted_blocks(users=7, items=40, per_user=9))


def federation_of(case, engine, **kwargs):
    return Federation(case(SETTINGS, CLIENTS.items), CLIENTS, ENGINES[engine](), SETTINGS, 0, **kwargs)


def trained(case, engine, **kwargs):
    federation = federation_of(case, engine, **kwargs)
    for round_ in range(1, ROUNDS + 1):
        federation.train_round(round_)
    return federation


class Still(Closure):
    """The loss of the first round in every round."""

    def loss_of(self, _):
        return super().loss_of(3.0)


@cache
def by_loop(case):
    """What the plain loop trains, once for all tests of it."""
    return values_of(trained(case, "loop"))


@pytest.mark.parametrize("engine", ["batched", "fused"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_loss_that_changes_with_the_round_trains_as_the_loop_does(case, engine):
    shares = apart(by_loop(case), values_of(trained(case, engine)))
    assert max(shares.values()) <= 1e-9, shares
    assert max(apart(by_loop(case), by_loop(Still)).values()) > 1e-3


@pytest.mark.parametrize("case", [AttributeList, ClosurePower, GlobalNumber, WholeFromRoundTwo])
def test_a_run_that_goes_on_from_a_checkpoint_equals_an_unbroken_one(case):
    unbroken = federation_of(case, "fused")
    unbroken.train_round(1)
    kept = {name: value.clone() for name, value in unbroken.tensors().items()}
    for round_ in (2, 3):
        unbroken.train_round(round_)
    resumed = federation_of(case, "fused")
    resumed.load(kept)
    for round_ in (2, 3):
        resumed.train_round(round_)
    assert max(apart(values_of(unbroken), values_of(resumed)).values()) == 0


@pytest.mark.parametrize("engine", ["batched", "fused"])
@pytest.mark.parametrize("case", [WholeFromRoundTwo, WholeInSome])
def test_whole_tables_in_some_rounds_are_right_where_changed_rows_are_kept(case, engine):
    expected = values_of(trained(case, "loop"))
    assert max(apart(expected, values_of(trained(case, engine, dense_bytes=0))).values()) <= 1e-9


def test_a_loss_that_stays_the_same_is_compiled_once():
    federation = trained(Closure, "fused")
    assert len(federation.engine.compiler._compiled) == 1
    assert len(federation._needs) == 1


class OnServer(ServerRule):
    strength = 1.0

    def begin(self, server):
        self.strength = strength_of(server.round_)


class AttributeOfServer(FedMF):
    server_rule = OnServer

    def loss(self, w, batch):
        return mean_entropy(self.score(w, batch.items), batch) * self.server.strength


@pytest.mark.parametrize("engine", ENGINES)
def test_a_loss_that_reads_the_object_of_the_server_is_refused(engine):
    with pytest.raises(FederationError, match=r"test_changing_losses.py:\d+: .* reads self.server.strength"):
        federation_of(AttributeOfServer, engine).train_round(1)


def test_the_server_is_back_after_a_loss_was_refused():
    method = AttributeOfServer(SETTINGS, CLIENTS.items)
    server = method.server
    with pytest.raises(FederationError):
        Federation(method, CLIENTS, LoopEngine(), SETTINGS, 0).train_round(1)
    assert method.server is server
