# ruff: noqa
"""Found on 2026-11-18: a gradient that is zero but for rounding was taken for one that goes by filling."""

import torch
from torch.nn import functional

from fedrec.federation.model import Initial, Method, Step, dot, item_table, vector

ROWS = (3,)
SETTINGS = {}


class RandomProgram(Method):
    """Random, and made smaller."""

    def parameters(self):
        return {
            "Q": item_table(self.items, 5, "shared", Initial("constant", 0.4)),
            "p": vector(5, "private", Initial("normal", 0.3)),
            "g": vector(1, "shared", Initial("uniform", 0.5)),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def loss_of(self, number, a, k):
        def loss_0(w, batch):
            s = dot(w.Q[batch.items], w.p) + batch.labels
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            return value

        def loss_1(w, batch):
            s = dot(w.Q[batch.items], w.p) + batch.labels
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            value = value + 0.1 * batch.logsumexp(
                functional.cosine_similarity(
                    w.Q[batch.items] + 2,
                    (
                        torch.cat(
                            [
                                batch.labels.unsqueeze(-1).expand(*batch.labels.shape, 1),
                                batch.labels.unsqueeze(-1).expand(*batch.labels.shape, 4),
                            ],
                            -1,
                        )
                        + w.g
                    )
                    + 2,
                    dim=-1,
                )
            )
            return value

        return [loss_0, loss_1][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step(
                {"g": 0.05, "Q": 0.05, "p": 0.05}, "sgd", weight_decay={"g": 0.01}, loss=self.loss_of(0, a, k)
            ),
            Step({"p": 0.05, "Q": 0.02}, "adam", weight_decay={"p": 0.01}),
            Step({"p": 0.02, "g": 0.02, "Q": 0.05}, "sgd"),
            epochs=3,
            loss=self.loss_of(1, a, k),
        )
