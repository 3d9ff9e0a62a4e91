"""FedAdam: the server takes clients' mean change for a gradient, and steps by Adam instead of adding it.

FedMF's clients, and the adaptive server of the paper's Algorithm 2.

    score     p_u . q_i
    client    trains p_u and its copy of Q together
    upload    Q_u
    server    D = (sum of w_u Q_u) - Q;  M = beta1 M + (1 - beta1) D
              V = beta2 V + (1 - beta2) D^2                        (`server_optimiser=adam`)
              V = V - (1 - beta2) D^2 sign(V - D^2)                (`server_optimiser=yogi`, FedYogi)
              Q = Q + server_rate x M / (sqrt(V) + floor)
    scored    own p_u with the server's newest Q
"""

from typing_extensions import override

from fedrec.federation.model import Citation, Parameter, ServerRule, ServerSide
from fedrec.federation.server.optimisers import ServerOptimiser, moments_of
from fedrec.methods.fedmf import FedMF


class AdaptiveServer(ServerRule):
    """Moves Q by an optimiser instead of replacing it by the mean."""

    @override
    def begin(self, server: ServerSide) -> None:
        server.shared["before"] = server.shared["Q"].clone()

    @override
    def finish(self, server: ServerSide) -> None:
        shared, settings = server.shared, self.settings
        direction = shared["Q"] - shared["before"]
        shared["Q"] = shared["before"]
        ServerOptimiser(
            settings["server_optimiser"],
            settings["server_rate"],
            settings["beta1"],
            settings["beta2"],
            settings["floor"],
        ).move(shared, "Q", direction)


class FedAdam(FedMF):
    """Adaptive federated optimisation, over matrix factorisation."""

    paper = Citation("Reddi et al.", "Adaptive federated optimization", "ICLR", 2021)
    cost = "As FedMF, and O(m d) on the server."

    server_rule = AdaptiveServer

    def parameters(self) -> dict[str, Parameter]:
        """FedMF's parameters, and on the server a copy of Q from the start of the round and the moments."""
        model = super().parameters()
        moments = moments_of({"Q": model["Q"]})
        return model | {"before": moments["Q.first"]} | moments


METHOD = FedAdam
