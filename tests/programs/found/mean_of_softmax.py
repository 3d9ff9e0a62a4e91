# ruff: noqa
"""Found on 2026-11-18: a gradient that is zero but for rounding was taken for one that goes by filling."""

from torch.nn import functional

from fedrec.federation.model import Initial, Method, Step, dot, item_table, matrix, vector

ROWS = (3,)
SETTINGS = {}


class RandomProgram(Method):
    """Random, and made smaller."""

    def parameters(self):
        return {
            "Q": item_table(self.items, 2, "shared", Initial("uniform", 0.5)),
            "T": item_table(self.items, 2, "local", Initial("constant", 0.4)),
            "U": item_table(self.items, 3, "private", Initial("normal", 0.3)),
            "p": vector(2, "private", Initial("normal", 0.3)),
            "g": vector(2, "private", Initial("normal", 0.7)),
            "h": vector(2, "local", Initial("uniform", 0.5)),
            "x": vector(1, "private", Initial("constant", 0.4)),
            "M": matrix(2, 3, "shared", Initial("normal", 0.7)),
            "N": matrix(2, 3, "private", Initial("normal", 0.7)),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def loss_of(self, number, a, k):
        def loss_0(w, batch):
            s = dot(w.Q[batch.items], w.p) + batch.labels
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            value = value + 0.1 * batch.mean(batch.softmax(dot(w.T[batch.items], w.T[batch.items])))
            return value

        return [loss_0][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step({"h": 0.1, "p": 0.05}, "sgd", weight_decay={"h": 0.2}),
            Step(
                {"g": 0.1, "M": 0.1, "U": 0.02, "x": 0.05, "T": 0.02, "h": 0.1, "N": 0.02, "Q": 0.02}, "sgd"
            ),
            Step({"M": 0.02, "h": 0.05, "U": 0.02, "p": 0.1}, "adam"),
            epochs=1,
            loss=self.loss_of(0, a, k),
        )
