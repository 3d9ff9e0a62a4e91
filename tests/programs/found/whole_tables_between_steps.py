# ruff: noqa
"""Found on 2026-11-18: rows that Adam moves on in one step were read as they were in another step."""

from torch.nn import functional

from fedrec.federation.model import Initial, Method, Step, dot, item_table, matrix, vector

ROWS = (3,)
SETTINGS = {}


class RandomProgram(Method):
    """Random, and made smaller."""

    def parameters(self):
        return {
            "Q": item_table(self.items, 7, "shared", Initial("normal", 0.3)),
            "T": item_table(self.items, 7, "local", Initial("normal", 0.7)),
            "p": vector(7, "private", Initial("normal", 0.3)),
            "g": vector(7, "private", Initial("constant", 0.4)),
            "h": vector(1, "local", Initial("normal", 0.7)),
            "M": matrix(7, 1, "private", Initial("normal", 0.3)),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def loss_of(self, number, a, k):
        def loss_0(w, batch):
            s = dot(w.Q[batch.items], w.p) + 0
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            return value

        def loss_1(w, batch):
            s = dot(w.Q[batch.items], w.p) + 0
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            value = value + 0.1 * (w.Q.whole() - w.T.whole()).square().mean((-1, -2))
            return value

        return [loss_0, loss_1][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step({"Q": 0.1}, "adam", loss=self.loss_of(0, a, k)),
            Step({"p": 0.1}, "sgd", loss=self.loss_of(1, a, k)),
            epochs=2,
            loss=self.loss_of(1, a, k),
        )
