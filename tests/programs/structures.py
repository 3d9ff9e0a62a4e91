"""Unusual structures of rounds: steps, fits, rewrites, uploads, names, sizes, and what changes from round to round."""

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.model import (
    Batch,
    Client,
    Initial,
    Loss,
    Method,
    Parameter,
    ServerRule,
    Step,
    TableRewrite,
    UploadTransform,
    Weights,
    Who,
    dot,
    item_table,
    matrix,
    vector,
)
from tests.programs.cases import Corpus, parts
from tests.programs.losses import entropies, fitted, scores

STRUCTURES = Corpus()
_structure = STRUCTURES.structure
_NORMAL, _SMALL, _ZERO = Initial("normal", 1.0), Initial("uniform", 0.5), Initial("constant", 0.0)


class Plain(Method):
    """Matrix factorisation with further parameters; what is unusual is in a subclass."""

    further = ""

    def parameters(self) -> dict[str, Parameter]:
        known = parts(self.items, self.settings["d"])
        return {name: known[name] for name in ("Q", "p", *self.further.split())}

    def score(self, w: Weights, items: Tensor) -> Tensor:
        return dot(w.Q[items], w.p)

    def local_round(self, client: Client) -> None:
        self.train(client, "Q", "p")
        client.upload("Q")

    def train(self, client: Client, *names: str, loss: Loss | None = None, **how) -> None:
        """Epochs of one step on some parameters."""
        self.fit(client, self.one(client, *names), loss=loss, **how)

    def one(self, client: Client, *names: str, factor: float = 1.0, **decay: float) -> Step:
        """One step on some parameters."""
        return self.step(client, dict.fromkeys(names, self.settings["rate"] * factor), decay)


def pulled(w: Weights, batch: Batch) -> Tensor:
    """A loss that pulls rows to zero."""
    return batch.mean(w.Q[batch.items].square().sum(-1))


def squared(w: Weights, batch: Batch) -> Tensor:
    """Squared errors."""
    return batch.mean((scores(w, batch) - batch.labels).square())


# Steps and fits


@_structure(quick=True)
class Ordinary(Plain):
    """Nothing unusual."""


@_structure(settings={"optimiser": "sgd"}, quick=True)
class OrdinarySGD(Plain):
    """Plain gradient steps."""


@_structure()
class TwoFits(Plain):
    """The vector first, then the table."""

    def local_round(self, client):
        self.train(client, "p")
        self.train(client, "Q")
        client.upload("Q")


@_structure(quick=True)
class ThreeFitsWithLosses(Plain):
    """Three fits with losses of their own."""

    def local_round(self, client):
        self.train(client, "p", loss=squared)
        self.train(client, "Q", loss=pulled, epochs=1)
        self.train(client, "Q", "p")
        client.upload("Q")


@_structure(quick=True)
class TwoSteps(Plain):
    """Two steps in every mini-batch."""

    def local_round(self, client):
        self.fit(client, self.one(client, "p"), self.one(client, "Q"))
        client.upload("Q")


@_structure()
class StepsWithOwnLosses(Plain):
    """Each step has a loss of its own."""

    def local_round(self, client):
        rate = self.settings["rate"]
        steps = Step({"p": rate}, "adam", loss=squared), Step({"Q": rate}, "sgd", loss=pulled)
        self.fit(client, *steps, self.one(client, "Q", "p"))
        client.upload("Q")


@_structure()
class OneTableInTwoSteps(Plain):
    """The same table in two steps, by two optimisers."""

    def local_round(self, client):
        rate = self.settings["rate"]
        self.fit(client, Step({"Q": rate, "p": rate}, "adam"), Step({"Q": rate}, "sgd", loss=pulled))
        client.upload("Q")


def _whole_read(w, batch):
    return fitted(scores(w, batch), batch) + 0.1 * (w.Q.whole() * w.p).square().mean((-1, -2))


@_structure(quick=True)
class WholeReadInAnotherStep(Plain):
    """One step moves the rows of a table by Adam, which goes on where a mini-batch has no sample; another reads all."""

    def local_round(self, client):
        steps = Step({"Q": 0.05}, "adam"), Step({"p": 0.05}, "sgd", loss=_whole_read)
        self.fit(client, *steps)
        client.upload("Q")


@_structure()
class WholeReadInAnotherFit(Plain):
    """One fit moves the rows of a table by Adam, another reads all of them."""

    def local_round(self, client):
        self.train(client, "Q")
        self.train(client, "p", loss=_whole_read)
        client.upload("Q")


@_structure(quick=True)
class TrainingSumAlone(Plain):
    """A fit that trains no table reads the sum of training items."""

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def local_round(self, client):
        def loss(w, batch):
            return fitted(dot(w.Q[batch.items] + w.Q.training_sum() / w.interactions, w.p), batch)

        self.train(client, "p", loss=loss)
        client.upload("Q")


@_structure()
class RatesApart(Plain):
    """Rates that differ by a million."""

    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": 1.0, "p": 1e-6}))
        client.upload("Q")


@_structure()
class RateOfZero(Plain):
    """A parameter whose rate is 0."""

    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": 0.05, "p": 0.0}))
        client.upload("Q")


@_structure(settings={"optimiser": "sgd"})
class NegativeRate(Plain):
    """A rate below 0 climbs."""

    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": 0.05, "p": -0.01}))
        client.upload("Q")


@_structure(quick=True)
class KeptState(Plain):
    """Adam's moments last from round to round."""

    def local_round(self, client):
        self.fit(client, Step({"Q": 0.05, "p": 0.05}, "adam", keep_state=True))
        client.upload("Q")


@_structure()
class KeptBesideFresh(Plain):
    """Kept moments of a vector beside fresh ones of a table."""

    further = "h"

    def score(self, w, items):
        return dot(w.Q[items], w.p * w.h)

    def local_round(self, client):
        self.fit(client, Step({"p": 0.05}, "adam", keep_state=True), Step({"Q": 0.05, "h": 0.02}, "adam"))
        client.upload("Q", "h")


@_structure(settings={"optimiser": "sgd"})
class KeptStateOfSGD(Plain):
    """Steps without moments, of which nothing can be kept."""

    def local_round(self, client):
        self.fit(client, Step({"Q": 0.05, "p": 0.05}, "sgd", keep_state=True))
        client.upload("Q")


@_structure()
class KeptMomentsUnused(Plain):
    """Kept moments of a vector that the loss does not read."""

    further = "h"

    def local_round(self, client):
        self.fit(client, Step({"Q": 0.05, "p": 0.05, "h": 0.05}, "adam", keep_state=True))
        client.upload("Q", "h")


@_structure(rounds=3, expected="either", text="kept|state|moment")
class KeptInTwoFits(Plain):
    """The same kept moments in two fits of a round."""

    def local_round(self, client):
        self.fit(client, Step({"p": 0.05}, "adam", keep_state=True))
        self.fit(client, Step({"Q": 0.05, "p": 0.02}, "adam", keep_state=True))
        client.upload("Q")


@_structure(expected="either", text="kept|keep_state|moment", by_check=True)
class KeptInTwoSteps(Plain):
    """The same kept moments in two steps of a mini-batch, of which only one could be kept."""

    def local_round(self, client):
        steps = (
            Step({"p": 0.05}, "adam", keep_state=True),
            Step({"Q": 0.1, "p": 0.1}, "adam", keep_state=True),
        )
        self.fit(client, *steps)
        client.upload("Q")


@_structure(rounds=3, settings={"participation": 0.5})
class KeptWithHalfOfClients(Plain):
    """Kept moments where half of the clients take part."""

    def local_round(self, client):
        self.fit(client, Step({"Q": 0.05, "p": 0.05}, "adam", keep_state=True))
        client.upload("Q")


@_structure(settings={"optimiser": "sgd"}, quick=True)
class DecaySGD(Plain):
    """Weight decay of plain steps."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.1, p=0.02))
        client.upload("Q")


@_structure(quick=True)
class DecayAdam(Plain):
    """Weight decay of Adam's steps, which move every row."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.1, p=0.02))
        client.upload("Q")


@_structure(settings={"optimiser": "sgd"})
class NegativeDecay(Plain):
    """Weight decay below 0 grows."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=-0.1))
        client.upload("Q")


@_structure(quick=True)
class UnusedWithDecay(Plain):
    """A trained vector with decay that the loss does not read stays as it is."""

    further = "h"

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", "h", h=0.5))
        client.upload("Q", "h")


@_structure(settings={"optimiser": "sgd"})
class UnusedWithDecaySGD(Plain):
    """The same by plain steps."""

    further = "h"

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", "h", h=0.5))
        client.upload("Q", "h")


@_structure()
class TableUnusedWithDecay(Plain):
    """A trained table with decay that the loss does not read."""

    further = "D"

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", "D", D=0.5))
        client.upload("Q")


@_structure(settings={"optimiser": "sgd"})
class TableUnusedWithDecaySGD(Plain):
    """The same by plain steps."""

    further = "D"

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", "D", D=0.5))
        client.upload("Q")


@_structure(settings={"optimiser": "sgd"})
class DecayOfTwoSteps(Plain):
    """Two steps of which one decays."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", Q=0.2), self.one(client, "p", "Q"))
        client.upload("Q")


@_structure(settings={"batch_decay": 0.8, "round_decay": 0.5, "optimiser": "sgd"}, rounds=3)
class RatesThatShrink(Plain):
    """Rates shrink after every mini-batch and every round, with decay."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.1))
        client.upload("Q")


@_structure(expected="either", text="batch_decay|shrink")
class BatchDecaysApart(Plain):
    """Two steps whose rates shrink differently."""

    def local_round(self, client):
        self.fit(client, Step({"p": 0.05}, "adam", batch_decay=0.5), Step({"Q": 0.05}, "adam"))
        client.upload("Q")


@_structure(settings={"early_stop": 0.3, "local_epochs": 6}, quick=True)
class EarlyStop(Plain):
    """Clients stop after epochs that bring little."""


@_structure(settings={"early_stop": 0.2, "local_epochs": 5, "optimiser": "sgd"})
class EarlyStopWithDecay(Plain):
    """Clients stop early, and decay moves all rows."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.3))
        client.upload("Q")


@_structure(settings={"early_stop": 0.2, "local_epochs": 5})
class EarlyStopThenAnotherFit(Plain):
    """A second fit after one that stops early."""

    def local_round(self, client):
        self.train(client, "p")
        self.train(client, "Q", epochs=1)
        client.upload("Q")


@_structure(settings={"early_stop": 1e9, "local_epochs": 5})
class StopsAtOnce(Plain):
    """Every client stops after its second epoch."""


@_structure(quick=True)
class Halves(Plain):
    """Each fit has half of the samples."""

    def local_round(self, client):
        self.train(client, "p", samples="first")
        self.train(client, "Q", samples="second")
        client.upload("Q")


@_structure()
class HalvesAndAll(Plain):
    """A half, then all, then the other half."""

    def local_round(self, client):
        self.train(client, "Q", "p", samples="second")
        self.train(client, "p")
        self.train(client, "Q", samples="first")
        client.upload("Q")


@_structure(rows=(2, 3, 6, 9))
class HalvesOfTwo(Plain):
    """Each fit has half of the samples, and every client has two interactions."""

    def local_round(self, client):
        self.train(client, "p", samples="first")
        self.train(client, "Q", samples="second")
        client.upload("Q")


# Rounds that do little


@_structure(expected="either", text="fit|train|epoch|loss")
class NoFit(Plain):
    """A round without a fit."""

    def local_round(self, client):
        client.upload("Q")


@_structure(expected="either", text="fit|train|epoch|loss")
class NothingAtAll(Plain):
    """A round in which nothing is asked of a client."""

    def local_round(self, _client):
        return


@_structure(expected="either", text="fit|train|epoch|loss")
class EpochsOfZero(Plain):
    """A fit of no epochs."""

    def local_round(self, client):
        self.train(client, "Q", "p", epochs=0)
        client.upload("Q")


@_structure(expected="refused", text="epoch")
class NegativeEpochs(Plain):
    """A fit of fewer than no epochs."""

    def local_round(self, client):
        self.train(client, "Q", "p", epochs=-1)
        client.upload("Q")


@_structure(rounds=3)
class FitAfterAQuietRound(Plain):
    """Only every second round trains the table."""

    def local_round(self, client):
        self.train(client, "p")
        if client.round_ % 2 == 0:
            self.train(client, "Q")
            client.upload("Q")


@_structure(expected="refused", text="step")
class FitWithoutSteps(Plain):
    """A fit without a step."""

    def local_round(self, client):
        self.fit(client)
        client.upload("Q")


@_structure(expected="refused", text="no parameter|step|rates|trains nothing")
class EmptyStep(Plain):
    """A step that trains nothing."""

    def local_round(self, client):
        self.fit(client, Step({}, "adam"))
        client.upload("Q")


@_structure(expected="refused", text="adamw")
class UnknownOptimiser(Plain):
    """An optimiser that does not exist."""

    def local_round(self, client):
        self.fit(client, Step({"Q": 0.05, "p": 0.05}, "adamw"))
        client.upload("Q")


@_structure(expected="refused", text="x")
class UnknownTrained(Plain):
    """A parameter that does not exist is trained."""

    def local_round(self, client):
        self.train(client, "Q", "x")
        client.upload("Q")


@_structure(expected="refused", text="x")
class UnknownUploaded(Plain):
    """A parameter that does not exist is uploaded."""

    def local_round(self, client):
        self.train(client, "Q", "p")
        client.upload("x")


@_structure(expected="refused", text="p")
class PrivateUploaded(Plain):
    """A private parameter is uploaded."""

    def local_round(self, client):
        self.train(client, "Q", "p")
        client.upload("p")


@_structure(expected="refused", text="third")
class UnknownHalf(Plain):
    """A third of the samples."""

    def local_round(self, client):
        self.train(client, "Q", "p", samples="third")
        client.upload("Q")


@_structure(expected="refused", text="g")
class ServerParameterTrained(Plain):
    """A parameter that only the server has is trained."""

    further = "g"

    def local_round(self, client):
        self.train(client, "Q", "g")
        client.upload("Q")


@_structure(expected="refused", text="h|R|rewrite")
class SharedRewritten(Plain):
    """A shared table is rewritten."""

    def local_round(self, client):
        client.rewrite("Q", lambda w, items: w.Q[items] * 0.5)
        self.train(client, "Q", "p")
        client.upload("Q")


@_structure(expected="refused", text="x|rewrite")
class UnknownRewritten(Plain):
    """A table that does not exist is rewritten."""

    def local_round(self, client):
        client.rewrite("x", lambda w, items: w.Q[items] * 0.5)
        self.train(client, "Q", "p")
        client.upload("Q")


# Rewrites


class _Distilled(Plain):
    further = "D R"

    def loss(self, w, batch):
        pull = (w.Q[batch.items] - w.R[batch.items]).square().sum(-1)
        return fitted(dot(w.Q[batch.items] + w.D[batch.items], w.p), batch) + 0.1 * batch.mean(pull)


@_structure(quick=True)
class RewriteRows(_Distilled):
    """A scratch table is filled row by row."""

    def local_round(self, client):
        client.rewrite("R", lambda w, items: w.Q[items] * 0.5 + w.D[items])
        self.train(client, "Q", "p", "D")
        client.upload("Q")


@_structure()
class RewriteBetweenFits(_Distilled):
    """A private table is rewritten between two fits, from what was trained."""

    def local_round(self, client):
        self.train(client, "Q", "p", "D", epochs=1)
        client.rewrite("D", lambda w, items: 0.5 * w.D[items] + 0.5 * w.Q[items].tanh())
        self.train(client, "Q", "D", epochs=1)
        client.upload("Q")


@_structure()
class RewriteTwice(_Distilled):
    """Tables are rewritten from each other, twice."""

    def local_round(self, client):
        client.rewrite("R", lambda w, items: w.D[items] + w.p)
        client.rewrite("D", lambda w, items: w.R[items] - w.Q[items])
        self.train(client, "Q", "p", "D")
        client.rewrite("D", lambda w, items: w.R[items] * 0.1 + w.D[items])
        client.upload("Q")


@_structure()
class RewriteAfterUpload(_Distilled):
    """A table is rewritten after the upload."""

    def local_round(self, client):
        self.train(client, "Q", "p", "D")
        client.upload("Q")
        client.rewrite("D", lambda w, items: w.Q[items] - w.D[items])


@_structure(settings={"optimiser": "sgd"})
class RewriteOfDecayed(_Distilled):
    """A table whose rows decay is rewritten."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", "D", Q=0.2, D=0.3))
        client.rewrite("D", lambda w, items: w.Q[items] * 0.3 + w.D[items])
        self.fit(client, self.one(client, "D", D=0.3))
        client.upload("Q")


@_structure(rounds=3)
class RewriteByRound(_Distilled):
    """A rewrite that mixes by the round."""

    def local_round(self, client):
        share = 1 / client.round_
        client.rewrite("D", lambda w, items: share * w.Q[items] + (1 - share) * w.D[items])
        self.train(client, "Q", "p", "D")
        client.upload("Q")


@_structure()
class RewriteByInteractions(_Distilled):
    """A rewrite that goes by what the client has beside parameters."""

    def local_round(self, client):
        client.rewrite("D", lambda w, items: w.D[items] / (1 + w.interactions) + w.held * w.Q[items])
        self.train(client, "Q", "p", "D")
        client.upload("Q")


class _Centred(TableRewrite):
    def of_one(self, table, server):
        return table - table.mean(0) + server["Q"].mean()

    def of_many(self, tables, server):
        return tables - tables.mean(1, keepdim=True) + server["Q"].mean()


@_structure(quick=True)
class RewriteWhole(_Distilled):
    """A table is rewritten as a whole, by the server's parameters."""

    def local_round(self, client):
        self.train(client, "Q", "p", "D")
        client.rewrite("D", _Centred())
        client.upload("Q")


@_structure(expected="refused", text="row|items|looked up|know")
class RewriteByOtherRows(_Distilled):
    """A rewrite that looks at the rows of other items."""

    def local_round(self, client):
        client.rewrite("D", lambda w, items: w.Q[items.flip(-1)])
        self.train(client, "Q", "p", "D")
        client.upload("Q")


@_structure(expected="refused", text="training")
class RewriteByTrainingSum(_Distilled):
    """A rewrite that asks for training items."""

    def local_round(self, client):
        client.rewrite("D", lambda w, items: w.D[items] + w.Q.training_sum())
        self.train(client, "Q", "p", "D")
        client.upload("Q")


@_structure(expected="refused", text="rewrit|shape|rows|wide")
class RewriteOfAnotherWidth(_Distilled):
    """A rewrite whose rows are too short."""

    def local_round(self, client):
        client.rewrite("D", lambda w, items: w.Q[items][..., :2])
        self.train(client, "Q", "p", "D")
        client.upload("Q")


@_structure(expected="refused", text="random|draw")
class RewriteAtRandom(_Distilled):
    """A rewrite that draws."""

    def local_round(self, client):
        client.rewrite("D", lambda w, items: torch.randn_like(w.Q[items]))
        self.train(client, "Q", "p", "D")
        client.upload("Q")


# Uploads


@_structure(quick=True)
class UploadIntoAnother(Plain):
    """A table that stays on the client is uploaded into the shared one."""

    def parameters(self):
        return super().parameters() | {"L": item_table(self.items, self.settings["d"], "local", _SMALL)}

    def score(self, w, items):
        return dot(w.Q[items] + w.L[items], w.p)

    def local_round(self, client):
        self.train(client, "L", "p")
        client.upload("L", into="Q")


@_structure()
class UploadTwice(Plain):
    """A table is uploaded after each of two fits."""

    def local_round(self, client):
        self.train(client, "Q", "p", epochs=1)
        client.upload("Q")
        self.train(client, "Q", "p", epochs=1)


@_structure()
class UploadBeforeTraining(Plain):
    """A table is uploaded before it is trained."""

    def local_round(self, client):
        client.upload("Q")
        self.train(client, "Q", "p")


@_structure(expected="either", text="twice|upload")
class UploadSameTwice(Plain):
    """The same parameter is uploaded twice."""

    def local_round(self, client):
        self.train(client, "Q", "p")
        client.upload("Q")
        client.upload("Q")


@_structure(settings={"optimiser": "sgd"})
class UploadDecayed(Plain):
    """A decayed table is uploaded between two fits."""

    further = "D"

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.3))
        client.upload("Q")
        self.fit(client, self.one(client, "Q", "p", Q=0.2))


class _Gram(UploadTransform):
    label = "products of every two dimensions"

    def of_one(self, table):
        return table.T @ table

    def weighted_sum(self, tables, weights):
        return torch.einsum("c,cid,cie->de", weights, tables, tables)


@_structure()
class UploadThrough(Plain):
    """A function of a table is uploaded."""

    def parameters(self):
        d = self.settings["d"]
        own = {"L": item_table(self.items, d, "local", _SMALL), "G": matrix(d, d, "shared", _ZERO)}
        return super().parameters() | own

    def score(self, w, items):
        return dot(w.L[items] @ w.G + w.Q[items], w.p)

    def local_round(self, client):
        self.train(client, "Q", "L", "p")
        client.upload("Q")
        client.upload("L", into="G", transform=_Gram())


@_structure()
class UploadPersonal(Plain):
    """A parameter of which the server has one for each client."""

    further = "P"

    def score(self, w, items):
        return dot(w.Q[items], w.p + w.P)

    def local_round(self, client):
        self.train(client, "Q", "p", "P")
        client.upload("Q", "P")


@_structure()
class MatricesUploaded(Plain):
    """Shared matrices and vectors beside the table."""

    further = "M h t"

    def score(self, w, items):
        return dot(w.Q[items] @ w.M * w.h, w.p) + w.t.squeeze(-1)

    def local_round(self, client):
        self.train(client, "Q", "p", "M", "h", "t")
        client.upload("Q", "M", "h", "t")


def _combining(combine):
    class Combining(Plain):
        def parameters(self):
            d = self.settings["d"]
            return super().parameters() | {"Q": item_table(self.items, d, "shared", _NORMAL, combine)}

    return Combining


@_structure(rounds=3)
class CombineTouched(_combining("touched")):
    """The mean of those that changed a row."""


@_structure(rounds=3)
class CombineChange(_combining("change")):
    """A mean weighted by how much a row has changed."""


# Renewed and copied parameters


@_structure(rounds=3, quick=True)
class RenewedLocal(Plain):
    """A table of the client is forgotten when a round begins."""

    def parameters(self):
        table = Parameter((self.items, 4), "local", _SMALL, table=True, reset_each_round=True)
        return super().parameters() | {"L": table}

    def score(self, w, items):
        return dot(w.Q[items] + w.L[items], w.p)

    def local_round(self, client):
        self.train(client, "Q", "L", "p")
        client.upload("Q")


@_structure(rounds=3)
class RenewedPrivate(Plain):
    """The same of a private table, with decay."""

    def parameters(self):
        table = Parameter((self.items, 4), "private", _SMALL, table=True, reset_each_round=True)
        return super().parameters() | {"L": table}

    def score(self, w, items):
        return dot(w.Q[items] + w.L[items], w.p)

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "L", "p", L=0.1))
        client.upload("Q")


@_structure(rounds=3)
class RenewedRewritten(Plain):
    """A reset_each_round table that is rewritten and uploaded."""

    def parameters(self):
        table = Parameter((self.items, 4), "local", _SMALL, table=True, reset_each_round=True)
        return super().parameters() | {"L": table}

    def local_round(self, client):
        client.rewrite("L", lambda w, items: w.L[items] + w.Q[items])
        self.train(client, "L", "p", loss=lambda w, batch: fitted(dot(w.L[batch.items], w.p), batch))
        client.upload("L", into="Q")


@_structure(rounds=3)
class RenewedVector(Plain):
    """A vector is forgotten when a round begins."""

    def parameters(self):
        return super().parameters() | {"p": Parameter((1, 4), "private", _NORMAL, reset_each_round=True)}


@_structure(rounds=3, settings={"participation": 0.5})
class StartedFromShared(Plain):
    """A local table starts as a copy of the shared one when its client first takes part."""

    def parameters(self):
        table = Parameter((self.items, 4), "local", _ZERO, table=True, start="Q")
        return super().parameters() | {"L": table}

    def score(self, w, items):
        return dot(w.L[items], w.p)

    def local_round(self, client):
        self.train(client, "L", "p")
        client.upload("L", into="Q")


@_structure(rounds=3)
class OwnCopies(Plain):
    """Users are scored with the copy that they trained last, and train it after aggregation."""

    scored_with_own_copy = ("Q",)

    def after_aggregation(self, client: Client) -> Who:
        self.train(client, "Q", "p", epochs=1)
        return "participants"


@_structure(rounds=3, settings={"aggregate_from": 3})
class TrainedAlone(Plain):
    """Clients train alone for two rounds."""


@_structure(settings={"participation": 0.5})
class AfterForEveryone(Plain):
    """After aggregation everyone trains its vector, participant or not."""

    def after_aggregation(self, client: Client) -> Who:
        self.train(client, "p")
        return "everyone"


@_structure(rounds=3)
class DerivedNumbers(Plain):
    """A loss that reads numbers derived from whole tables."""

    def derived(self, w):
        return {"centre": w.Q.row_sum() / self.items, "length": w.Q.squared_norm()}

    def score(self, w, items):
        return dot(w.Q[items] - w.centre, w.p) / (1 + w.length.squeeze(-1) / 100)


# What changes from round to round


class _Changing(Plain):
    """A weight of rounds: 3, 1.5, 1."""

    def weight(self, client: Client) -> float:
        return 3.0 / client.round_


@_structure(rounds=3, quick=True)
class ClosurePower(_Changing):
    """A loss closes over a float that is an exponent."""

    def local_round(self, client):
        gamma = self.weight(client)

        def focal(w, batch):
            s = scores(w, batch)
            return batch.mean(torch.sigmoid(s) ** gamma * functional.softplus(s)) + fitted(s, batch)

        self.train(client, "Q", "p", loss=focal)
        client.upload("Q")


@_structure(rounds=3)
class ClosureWholePower(_Changing):
    """A loss closes over a whole number that is an exponent."""

    def local_round(self, client):
        power = client.round_

        def loss(w, batch):
            s = scores(w, batch)
            return batch.mean((s / 2) ** (2 * power)) + fitted(s, batch)

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


@_structure(rounds=3, quick=True)
class ClosureFactor(_Changing):
    """A loss closes over a float that is a factor."""

    def local_round(self, client):
        factor = self.weight(client)
        self.train(client, "Q", "p", loss=lambda w, batch: fitted(scores(w, batch) * factor, batch))
        client.upload("Q")


@_structure(rounds=3)
class ClosureOfOne(_Changing):
    """A float that is 1 in the first round."""

    def local_round(self, client):
        gamma = float(client.round_)
        self.train(
            client, "Q", "p", loss=lambda w, batch: batch.mean(entropies(scores(w, batch), batch) ** gamma)
        )
        client.upload("Q")


@_structure(rounds=4)
class ClosureThroughSpecialPowers(_Changing):
    """An exponent that is 2, 1, 0.5 and -1."""

    def local_round(self, client):
        gamma = {1: 2.0, 2: 1.0, 3: 0.5, 4: -1.0}[client.round_]
        self.train(
            client,
            "Q",
            "p",
            loss=lambda w, batch: batch.mean((1 + entropies(scores(w, batch), batch)) ** gamma),
        )
        client.upload("Q")


@_structure(rounds=3)
class ClosureEqual(_Changing):
    """A float that is compared with equality."""

    def local_round(self, client):
        at = 1.0 if client.round_ == 2 else 0.5

        def loss(w, batch):
            s = scores(w, batch)
            return fitted(s, batch) + batch.mean((batch.labels == at).to(s.dtype) * s)

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


@_structure(rounds=3)
class ClosureBounds(_Changing):
    """Floats that are bounds, choices of `where` and fillings."""

    def local_round(self, client):
        a = self.weight(client)

        def loss(w, batch):
            s = scores(w, batch).clamp(-a, a)
            chosen = torch.where(batch.labels > a / 4, s, s * a).masked_fill(s > a, a)
            return fitted(chosen, batch)

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


@_structure(rounds=3, quick=True)
class ClosureDeciding(_Changing):
    """A float decides which loss a function computes."""

    def local_round(self, client):
        a = self.weight(client)
        self.train(
            client,
            "Q",
            "p",
            loss=lambda w, batch: squared(w, batch) if a > 2 else fitted(scores(w, batch), batch),
        )
        client.upload("Q")


@_structure(rounds=3)
class ClosureText(_Changing):
    """A word decides which loss a function computes."""

    def local_round(self, client):
        kind = "squares" if client.round_ == 1 else "entropy"
        self.train(
            client,
            "Q",
            "p",
            loss=lambda w, batch: squared(w, batch) if kind == "squares" else fitted(scores(w, batch), batch),
        )
        client.upload("Q")


@_structure(rounds=3)
class ClosureFunction(_Changing):
    """A loss closes over another function, which changes."""

    def local_round(self, client):
        bend = torch.tanh if client.round_ == 1 else torch.sigmoid
        self.train(client, "Q", "p", loss=lambda w, batch: fitted(bend(scores(w, batch)), batch))
        client.upload("Q")


@_structure(rounds=3)
class ClosureTensor(_Changing):
    """A loss closes over a tensor, which changes."""

    def local_round(self, client):
        factor = torch.tensor(self.weight(client))
        self.train(
            client, "Q", "p", loss=lambda w, batch: fitted(scores(w, batch) * factor.to(batch.labels), batch)
        )
        client.upload("Q")


@_structure(rounds=3)
class ClosureList(_Changing):
    """A loss closes over a list, which changes."""

    def local_round(self, client):
        factors = [self.weight(client)]
        self.train(client, "Q", "p", loss=lambda w, batch: fitted(scores(w, batch) * factors[0], batch))
        client.upload("Q")


@_structure(rounds=3)
class DefaultArgument(_Changing):
    """A default argument that changes."""

    def local_round(self, client):
        weight = self.weight(client)

        def loss(w, batch, factor=weight, *, shift=0.1 * client.round_):
            return fitted(scores(w, batch) * factor + shift, batch)

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


@_structure(rounds=3, quick=True)
class AttributeFloat(_Changing):
    """A loss reads a float attribute that `local_round` sets."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factor, batch)

    def local_round(self, client):
        self.factor = self.weight(client)
        super().local_round(client)


@_structure(rounds=3, quick=True)
class AttributeList(_Changing):
    """A loss reads a list that `local_round` sets."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factors[0], batch)

    def local_round(self, client):
        self.factors = [self.weight(client)]
        super().local_round(client)


@_structure(rounds=3)
class AttributeListChanged(_Changing):
    """A loss reads a list that `local_round` changes in place."""

    def __init__(self, settings, items):
        self.factors = [0.0]
        super().__init__(settings, items)

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factors[0], batch)

    def local_round(self, client):
        self.factors[0] = self.weight(client)
        super().local_round(client)


@_structure(rounds=3)
class AttributeTuple(_Changing):
    """A loss reads a tuple that `local_round` sets."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factors[0], batch)

    def local_round(self, client):
        self.factors = (self.weight(client), "name")
        super().local_round(client)


@_structure(rounds=3)
class AttributeDict(_Changing):
    """A loss reads a dict that `local_round` sets."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factors["a"], batch)

    def local_round(self, client):
        self.factors = {"a": self.weight(client)}
        super().local_round(client)


@_structure(rounds=3)
class AttributeNested(_Changing):
    """A loss reads a number deep inside of containers."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factors["a"][0]["b"], batch)

    def local_round(self, client):
        self.factors = {"a": [{"b": self.weight(client)}]}
        super().local_round(client)


@_structure(rounds=3)
class AttributeTensor(_Changing):
    """A loss reads a tensor that `local_round` sets."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factor.to(batch.labels), batch)

    def local_round(self, client):
        self.factor = torch.tensor(self.weight(client))
        super().local_round(client)


class _Held:
    factor = 0.0


@_structure(rounds=3)
class AttributeOfObject(_Changing):
    """A loss reads an attribute of an object that the method holds."""

    def __init__(self, settings, items):
        self.held = _Held()
        super().__init__(settings, items)

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.held.factor, batch)

    def local_round(self, client):
        self.held.factor = self.weight(client)
        super().local_round(client)


@_structure(rounds=3, quick=True)
class ClassAttribute(_Changing):
    """A loss reads an attribute of the class."""

    factor = 0.0

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factor, batch)

    def local_round(self, client):
        type(self).factor = self.weight(client)
        super().local_round(client)


_FACTOR = 0.0


@_structure(rounds=3, quick=True)
class GlobalNumber(_Changing):
    """A loss reads a global of its module."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * _FACTOR, batch)

    def local_round(self, client):
        globals()["_FACTOR"] = self.weight(client)
        super().local_round(client)


def _by_helper(values: Tensor) -> Tensor:
    return values * _FACTOR


@_structure(rounds=3)
class GlobalOfHelper(_Changing):
    """A loss calls a function that reads a global."""

    def loss(self, w, batch):
        return fitted(_by_helper(scores(w, batch)), batch)

    def local_round(self, client):
        globals()["_FACTOR"] = self.weight(client)
        super().local_round(client)


@_structure(rounds=3)
class SettingsChanged(_Changing):
    """A loss reads a setting that `local_round` changes."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.settings["factor"], batch)

    def local_round(self, client):
        self.settings = {**self.settings, "factor": self.weight(client)}
        super().local_round(client)


@_structure(rounds=3)
class ClosureInSettings(_Changing):
    """Settings hold a list that changes."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.settings["factors"][0], batch)

    def local_round(self, client):
        self.settings = {**self.settings, "factors": [self.weight(client)]}
        super().local_round(client)


class _CountingRule(ServerRule):
    factor = 3.0

    def finish(self, server):
        self.factor = 3.0 / (server.round_ + 1)


@_structure(rounds=3, quick=True, expected="refused", text="server")
class AttributeOfServer(_Changing):
    """A loss reads an attribute of the server's rule, which changes after aggregation."""

    server_rule = _CountingRule

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.server.factor, batch)


@_structure(rounds=3)
class Property(_Changing):
    """A loss reads a property that is computed of what changes."""

    @property
    def factor(self) -> float:
        return 1.0 + self._round

    def loss(self, w, batch):
        return fitted(scores(w, batch) * self.factor, batch)

    def local_round(self, client):
        self._round = client.round_
        super().local_round(client)


@_structure(rounds=3)
class MethodReplaced(_Changing):
    """Another method is put in the place of one that the loss calls."""

    def loss(self, w, batch):
        return fitted(self.bend(scores(w, batch)), batch)

    def local_round(self, client):
        self.bend = torch.tanh if client.round_ == 1 else torch.sigmoid
        super().local_round(client)


@_structure(rounds=3)
class DerivedByRound(_Changing):
    """Derived numbers that change with the round."""

    def derived(self, w):
        return {"centre": w.Q.row_sum() / self.items * getattr(self, "factor", 0.0)}

    def score(self, w, items):
        return dot(w.Q[items] - w.centre, w.p)

    def local_round(self, client):
        self.factor = self.weight(client)
        super().local_round(client)


@_structure(rounds=3)
class LossByRound(_Changing):
    """Another loss in every round."""

    def local_round(self, client):
        self.train(client, "Q", "p", loss=(squared, pulled, self.loss)[client.round_ - 1])
        client.upload("Q")


@_structure(rounds=4)
class ProgramByRound(_Changing):
    """Another program in every round."""

    further = "D"

    def loss(self, w, batch):
        return fitted(dot(w.Q[batch.items] + w.D[batch.items], w.p), batch)

    def local_round(self, client):
        match client.round_ % 4:
            case 1:
                self.train(client, "Q", "p")
            case 2:
                self.fit(client, self.one(client, "D"), self.one(client, "Q", "p", Q=0.1))
            case 3:
                client.rewrite("D", lambda w, items: w.Q[items] - w.D[items])
                self.train(client, "p", epochs=1)
            case _:
                self.train(client, "Q", "D", samples="first")
        client.upload("Q")


@_structure(rounds=3, quick=True, expected="either", text="whole table")
class WholeFromRoundTwo(_Changing):
    """A loss asks for a whole table from the second round on."""

    def local_round(self, client):
        strength = 0.01 if client.round_ > 1 else 0.0

        def loss(w, batch):
            value = fitted(scores(w, batch), batch)
            return value + strength * w.Q.whole().square().sum((-1, -2)) if strength else value

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


@_structure(rounds=3, expected="either", text="whole table")
class WholeInRoundOneAlone(_Changing):
    """A loss asks for a whole table in the first round alone."""

    def local_round(self, client):
        strength = 0.01 if client.round_ == 1 else 0.0

        def loss(w, batch):
            value = fitted(scores(w, batch), batch)
            return value + strength * w.Q.whole().square().sum((-1, -2)) if strength else value

        self.train(client, "Q", "p", loss=loss)
        client.upload("Q")


@_structure(rounds=3)
class DecayFromRoundTwo(_Changing):
    """Weight decay of Adam from the second round on."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.0 if client.round_ == 1 else 0.2))
        client.upload("Q")


@_structure(rounds=3)
class OptimiserByRound(_Changing):
    """Another optimiser in every round."""

    def local_round(self, client):
        self.fit(client, Step({"Q": 0.05, "p": 0.05}, "adam" if client.round_ % 2 else "sgd"))
        client.upload("Q")


@_structure(rounds=3)
class RatesByRound(_Changing):
    """Rates that grow from round to round."""

    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": 0.02 * client.round_, "p": 0.1 / client.round_}))
        client.upload("Q")


@_structure(rounds=3)
class FrozenByRound(_Changing):
    """The table is frozen in every second round."""

    def local_round(self, client):
        self.train(client, *(["p"] if client.round_ % 2 == 0 else ["Q", "p"]))
        client.upload("Q")


# Names


def _renamed(table: str, user: str):
    """Matrix factorisation whose parameters have other names."""

    class Renamed(Plain):
        def parameters(self):
            d = self.settings["d"]
            return {table: item_table(self.items, d, "shared", _NORMAL), user: vector(d, "private", _NORMAL)}

        def score(self, w, items):
            return dot(w[table][items], w[user])

        def local_round(self, client):
            self.train(client, table, user)
            client.upload(table)

    return Renamed


@_structure(quick=True)
class NameOfC(_renamed("int", "double")):
    """Parameters are called as types of C are."""


@_structure()
class NameOfLoop(_renamed("k1", "i0")):
    """Parameters are called as loops of a kernel are."""


@_structure()
class NameOfKernel(_renamed("order", "scratch")):
    """Parameters are called as arguments of a kernel are."""


@_structure()
class NameWithUmlaut(_renamed("größe", "länge")):
    """Parameters have letters that C does not know."""


@_structure(expected="refused", text="items|keys")
class NameOfMethod(_renamed("items", "keys")):
    """Parameters are called as methods of a dict and parts of a mini-batch are."""


@_structure()
class NameWithSpaces(_renamed("item table", "1st")):
    """Names that are none in Python."""


@_structure(expected="either", text="name|a_b|a\\.b")
class NamesThatMeet(_renamed("a.b", "a_b")):
    """Two names that are one where dots are written as underscores."""


@_structure(expected="refused", text="held", quick=True)
class NameHeld(_renamed("Q", "held")):
    """A parameter is called as what the client has beside its parameters."""


@_structure(expected="refused", text="interactions")
class NameInteractions(_renamed("interactions", "p")):
    """A table is called as what the client has beside its parameters."""


@_structure(expected="either", text="name|empty")
class NameEmpty(_renamed("Q", "")):
    """A name without a letter."""


@_structure(expected="refused", text="centre|name|derived")
class DerivedLikeParameter(Plain):
    """A derived number has the name of a parameter."""

    def derived(self, w):
        return {"p": w.Q.row_sum() / self.items}


# Sizes


@_structure(settings={"d": 1}, quick=True)
class Width1(Plain):
    """Vectors of one number."""


@_structure(settings={"d": 1, "optimiser": "sgd"})
class Width1Decayed(Plain):
    """Vectors of one number, with decay."""

    def local_round(self, client):
        self.fit(client, self.one(client, "Q", "p", Q=0.1))
        client.upload("Q")


@_structure(settings={"d": 2})
class Width2(Plain):
    """Vectors of two numbers."""


@_structure(settings={"d": 130})
class Width130(Plain):
    """Vectors that are no multiple of what vector units hold."""


@_structure(settings={"d": 257})
class Width257(Plain):
    """Vectors of one more than a power of two."""


@_structure()
class Width0(Plain):
    """A table without a number in its rows."""

    def parameters(self):
        return super().parameters() | {"O": item_table(self.items, 0, "private", _SMALL)}

    def score(self, w, items):
        return dot(w.Q[items], w.p) + w.O[items].sum(-1)

    def local_round(self, client):
        self.train(client, "Q", "p", "O")
        client.upload("Q")


@_structure(settings={"d": 1})
class MatrixOfOne(Plain):
    """A matrix of one number."""

    further = "M"

    def score(self, w, items):
        return dot(w.Q[items] @ w.M, w.p)

    def local_round(self, client):
        self.train(client, "Q", "p", "M")
        client.upload("Q", "M")


@_structure(settings={"batch_size": 1}, quick=True)
class BatchOfOne(Plain):
    """Mini-batches of one sample."""


@_structure(settings={"batch_size": 2, "negatives": 2})
class BatchOfTwo(Plain):
    """Mini-batches of two samples, with a shorter one at the end."""


@_structure(settings={"batch_size": 1_000_000})
class BatchOfAMillion(Plain):
    """One mini-batch in an epoch."""


@_structure(rows=(5,))
class OneClient(Plain):
    """One client alone."""


@_structure(rows=(1, 1, 1))
class SingleInteractions(Plain):
    """Clients of one interaction each."""


@_structure(rows=(1,), settings={"batch_size": 1})
class OneClientOfOne(Plain):
    """One client with one interaction, and mini-batches of one."""


@_structure(rows=(20, 1, 2), items=30)
class NearlyAllItems(Plain):
    """A client that knows most items."""


@_structure(settings={"negatives": 5, "batch_size": 7})
class ManyNegatives(Plain):
    """Five negatives for each positive."""


@_structure(settings={"local_epochs": 20}, rounds=1)
class ManyEpochs(Plain):
    """Twenty epochs."""


# Who takes part


@_structure(rounds=3, settings={"participation": 0.5}, quick=True)
class HalfTakePart(Plain):
    """Half of the clients take part."""


@_structure(rounds=3, settings={"aggregated": 0.5, "weighting": "equal"})
class HalfAggregated(Plain):
    """Half of the uploads are aggregated, with equal weights; losses read whose."""

    def loss(self, w, batch):
        return fitted(scores(w, batch) * (1 + 0.5 * w.held.squeeze(-1)), batch)


@_structure(rounds=3, settings={"clients": 1})
class OneTakesPart(Plain):
    """One client takes part in each round."""


@_structure(rounds=3, settings={"participation": 0.5, "aggregated": 0.5})
class FewHeld(Plain):
    """Half of half of the uploads are aggregated, and a private table is kept."""

    further = "D"

    def score(self, w, items):
        return dot(w.Q[items] + w.D[items], w.p)

    def local_round(self, client):
        self.train(client, "Q", "D", "p")
        client.upload("Q")


@_structure(settings={"ldp": 0.1})
class NoisyUploads(Plain):
    """Noise on every number of an upload."""


@_structure(settings={"ldp": 0.1, "ldp_clip": 2.0})
class ClippedUploads(Plain):
    """Uploads that are clipped and noised."""

    further = "h"

    def score(self, w, items):
        return dot(w.Q[items], w.p * w.h)

    def local_round(self, client):
        self.train(client, "Q", "p", "h")
        client.upload("Q", "h")


# Steps and tables that do not go together


@_structure(expected="refused", text="finite|diverged")
class RateOfNaN(Plain):
    """A rate that is no number."""

    def local_round(self, client):
        self.fit(client, self.step(client, {"Q": float("nan"), "p": 0.05}))
        client.upload("Q")


@_structure(expected="refused", text="finite|diverged")
class RateTooLarge(Plain):
    """A rate at which numbers overflow."""

    def local_round(self, client):
        self.fit(client, Step({"Q": 1e200, "p": 1e200}, "sgd"))
        client.upload("Q")


@_structure(expected="refused", text="lives|live|elsewhere")
class UnknownLocation(Plain):
    """A parameter lives nowhere."""

    def parameters(self):
        return super().parameters() | {"x": vector(4, "elsewhere", _NORMAL)}


@_structure()
class TwoTablesAlike(Plain):
    """Two tables of which only one is read, both uploaded."""

    def parameters(self):
        return super().parameters() | {"S": item_table(self.items, 4, "shared", _SMALL)}

    def local_round(self, client):
        self.train(client, "Q", "p")
        client.upload("Q", "S")


@_structure()
class NothingShared(Plain):
    """Everything is private, and nothing uploaded."""

    def parameters(self):
        return {"Q": item_table(self.items, 4, "private", _NORMAL), "p": vector(4, "private", _NORMAL)}

    def local_round(self, client):
        self.train(client, "Q", "p")


@_structure(expected="either", text="parameter|table")
class NoTable(Plain):
    """A model without a table of items."""

    def parameters(self):
        return {"p": vector(4, "private", _NORMAL), "h": vector(4, "shared", _NORMAL)}

    def score(self, w, items):
        return dot(w.p, w.h).expand(items.shape)

    def loss(self, w, batch):
        return fitted(dot(w.p, w.h) + 0 * batch.labels, batch)

    def local_round(self, client):
        self.train(client, "p", "h")
        client.upload("h")


@_structure()
class PerceptronOfWidth1(Plain):
    """A perceptron whose layers narrow to one number."""

    def parameters(self):
        d = self.settings["d"]
        return super().parameters() | {
            "a": matrix(d, 3, "shared", _SMALL),
            "b1": vector(3, "shared", _SMALL),
            "o1": matrix(3, 1, "private", _SMALL),
            "b2": vector(1, "private", _SMALL),
        }

    def score(self, w, items):
        hidden = torch.relu((w.Q[items] * w.p) @ w.a + w.b1)
        return (hidden @ w.o1 + w.b2).squeeze(-1)

    def local_round(self, client):
        self.train(client, "Q", "p", "a", "b1", "o1", "b2")
        client.upload("Q", "a", "b1")
