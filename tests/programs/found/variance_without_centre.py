# ruff: noqa
"""Found on 2026-11-18: a gradient that is zero but for rounding was taken for one that goes by filling."""

from torch.nn import functional

from fedrec.federation.model import Initial, Method, Step, dot, item_table, vector

ROWS = (3,)
SETTINGS = {}


class RandomProgram(Method):
    """Random, and made smaller."""

    def parameters(self):
        return {
            "Q": item_table(self.items, 5, "shared", Initial("constant", 0.4)),
            "p": vector(5, "private", Initial("constant", 0.4)),
            "g": vector(1, "private", Initial("constant", 0.4)),
            "x": vector(1, "shared", Initial("normal", 0.7)),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def loss_of(self, number, a, k):
        def loss_0(w, batch):
            s = dot(w.Q[batch.items], w.p) + batch.labels
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            value = value + 0.1 * batch.mean((w.Q[batch.items] + w.g).var(-1, unbiased=False))
            return value

        return [loss_0][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step({"g": 0.1, "Q": 0.02, "x": 0.1, "p": 0.05}, "adam"),
            Step({"g": 0.05, "p": 0.1, "Q": 0.05, "x": 0.02}, "sgd"),
            epochs=1,
            loss=self.loss_of(0, a, k),
        )
