"""Found on 2026-11-18: ."""

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
            s = dot(w.Q[batch.items], w.p) + batch.occurrences()
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            return value

        def loss_1(w, batch):
            s = dot(w.Q[batch.items], w.p) + batch.occurrences()
            entropy = functional.binary_cross_entropy_with_logits(s, batch.labels, reduction="none")
            value = batch.mean(entropy)
            value = value + 0.1 * (w.Q.whole() - w.T.whole()).tanh().abs().mean((-1, -2))
            return value

        return [loss_0, loss_1][number]

    def local_round(self, client):
        a, k = 1.5 / client.round_, 1 + client.round_ % 2
        client.fit(
            Step(
                {"h": 0.1, "T": 0.05, "p": 0.05}, "sgd", weight_decay={"T": 0.2}, loss=self.loss_of(1, a, k)
            ),
            Step(
                {"g": 0.02, "h": 0.05, "M": 0.05, "p": 0.1, "Q": 0.1, "T": 0.1},
                "adam",
                loss=self.loss_of(0, a, k),
            ),
            Step({"M": 0.1, "p": 0.1, "g": 0.05}, "sgd"),
            epochs=3,
            loss=self.loss_of(1, a, k),
        )
