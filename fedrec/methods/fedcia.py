"""FedCIA: clients share the products of their item vectors, not the vectors.

    score     p_u . q_i
    client    trains p_u and its own Q_u, with Adam's state kept from round to round
    upload    S_u = Q_u Q_u^T, the products of every two item vectors
    server    S = mean of S_u, with noise
    client    then 100 steps of SGD on the (not squared) norm |Q_u Q_u^T - S|, with weight decay
    scored    own p_u and Q_u

`fitting=dimensions` is the official code's loss, which fits each p_d q_d to the label separately.
`fitting=product` is the mean entropy of the common protocol. In the code, every client adds Laplace noise to
S_u, which takes n m^2 draws. Here the server draws the mean of that noise from its normal limit.
"""

from dataclasses import replace

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.model import (
    Batch,
    Citation,
    Client,
    Initial,
    Method,
    Parameter,
    ServerRule,
    ServerSide,
    Weights,
    Who,
    dot,
    item_table,
    matrix,
    vector,
)
from fedrec.federation.privacy.noise import gaussian
from fedrec.methods._math.products import Approach, Products


class NoisyMean(ServerRule):
    """Adds the mean of the clients' noise to the mean of their products."""

    @override
    def finish(self, server: ServerSide) -> None:
        if not self.settings["noise"]:
            return
        mean = server.shared["S"]
        # Laplace noise of scale b has standard deviation b sqrt 2; variances of independent noise add up.
        spread = self.settings["noise"] * float((2 * server.share.square().sum()).sqrt())
        # Row i uses the draws of client i, since clients of this method draw no noise of this kind.
        rows = torch.arange(len(mean), device=mean.device)
        server.shared["S"] = mean + gaussian(rows, len(mean), spread, server.seed, server.round_).to(mean)


class FedCIA(Method):
    """Collaborative information aggregation, over matrix factorisation."""

    paper = Citation(
        "Han et al.",
        "FedCIA: federated collaborative information aggregation for privacy-preserving recommendation",
        "SIGIR",
        2025,
    )
    cost = (
        "O(E n m d steps) for Adam over whole tables; O(n m^2 d) to combine products and to turn tables by "
        "S, once for all steps towards it, of which each is then O(n d^3); where S has too many strong axes, "
        "O(m^3) to find them and O(n m d^2) a step. Memory O(3 n m d + m^2)."
    )

    server_rule = NoisyMean

    def parameters(self) -> dict[str, Parameter]:
        """Q and p are the client's own; S is on the server."""
        d, start = self.settings["d"], Initial("normal", self.settings["spread"])
        return {
            "Q": item_table(self.items, d, "local", start),
            "p": vector(d, "private", start),
            "S": matrix(self.items, self.items, "server", Initial("constant", 0.0)),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q."""
        return dot(w.Q[items], w.p)

    def local_round(self, client: Client) -> None:
        """Train p and Q together, upload the products of item vectors."""
        step = self.step(client, {"Q": self.item_rate(), "p": self.settings["rate"]})
        self.fit(client, replace(step, keep_state=self.settings["adam_state"] == "kept"))
        client.upload("Q", into="S", transform=Products())

    def after_aggregation(self, client: Client) -> Who:
        """Align: fit the products of the own item rows to S, once the server has aggregated."""
        settings = self.settings
        if client.round_ < settings["aggregate_from"]:
            return "nobody"
        goal = Approach("S", settings["align_steps"], settings["align_rate"], settings["align_decay"])
        client.rewrite("Q", goal)
        return "participants"


class FittedDimensions(FedCIA):
    """The official code's loss: the squared error of each dimension separately."""

    @override
    def loss(self, w: Weights, batch: Batch) -> Tensor:
        error = w.Q[batch.items] * w.p - batch.labels.unsqueeze(-1)
        return batch.mean(error.square().mean(-1))


METHOD = FedCIA
VARIANTS = {("fitting", "dimensions"): FittedDimensions}
