# ruff: noqa
"""Found on 2026-11-18: the sum of training items, in a fit that trains no table, named a list that the kernel had not made."""

from torch.nn import functional

from fedrec.federation.model import Initial, Method, Step, dot, item_table, vector

ROWS = (3,)
SETTINGS = {}


class RandomProgram(Method):
    """Random, and made smaller."""

    def parameters(self):
        return {
            "Q": item_table(self.items, 1, "shared", Initial("uniform", 0.5)),
            "p": vector(1, "private", Initial("uniform", 0.5)),
            "g": vector(1, "shared", Initial("normal", 0.3)),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def loss_of(self, number, a, k):
        def loss_0(w, batch):
            s = dot(w.Q[batch.items], w.p) + (
                w.Q[batch.items].mean(-1) - (w.Q.training_sum() / w.interactions).amax(-1)
            )
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            return value

        return [loss_0][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step({"g": 0.05, "p": 0.02}, "sgd", loss=self.loss_of(0, a, k)),
            epochs=3,
            loss=self.loss_of(0, a, k),
        )
