# ruff: noqa
"""Found on 2026-11-18: an axis of one number was taken for an axis counted from the front."""

import torch
from torch.nn import functional

from fedrec.federation.model import Initial, Method, Step, dot, item_table, matrix, vector

ROWS = (3,)
SETTINGS = {}


class RandomProgram(Method):
    """Random, and made smaller."""

    def parameters(self):
        return {
            "Q": item_table(self.items, 5, "shared", Initial("uniform", 0.5)),
            "T": item_table(self.items, 1, "scratch", Initial("normal", 0.3)),
            "U": item_table(self.items, 1, "shared", Initial("uniform", 0.5)),
            "Y": item_table(self.items, 1, "local", Initial("constant", 0.4)),
            "p": vector(5, "private", Initial("normal", 0.7)),
            "g": vector(2, "private", Initial("normal", 0.7)),
            "M": matrix(1, 2, "private", Initial("constant", 0.4)),
            "N": matrix(1, 3, "shared", Initial("normal", 0.7)),
        }

    def score(self, w, items):
        return dot(w.Q[items], w.p)

    def loss_of(self, number, a, k):
        def loss_0(w, batch):
            s = dot(w.Q[batch.items], w.p) + functional.cosine_similarity(
                torch.atan2(w.T[batch.items], 1 + (w.U.training_sum() / w.interactions).square()) + 2,
                w.Y[batch.items] + 2,
                dim=-1,
            )
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            return value

        return [loss_0][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step({"U": 0.1, "Y": 0.02, "p": 0.05, "g": 0.05, "M": 0.05}, "adam"),
            Step({"M": 0.05, "Y": 0.05, "N": 0.02, "p": 0.1}, "sgd"),
            epochs=1,
            loss=self.loss_of(0, a, k),
            samples="first",
        )
