"""FedEM: every client gets an aggregate of its own and merges it with its own item table, item by item.

score      p_u . m_i, m_i = l_i + rho_i (g_i - l_i) (see the plug-in `em`, of which this is FedMF's)
upload     L_u, the client's own item table
server     G_u = sum over v of w_uv L_v; w_u balances data sizes p_v and similarities s_uv
scored     own p_u with own table merged with the newest G_u

`weights=closed` is the paper's minimiser (p_v + alpha s_uv) / (1 + alpha), rows divided by their sums;
`weights=simplex` the official code's: the point of the simplex nearest to p + alpha s_u, found by sorting
where the code solves one quadratic programme per client. `similarity=distance` is the paper's
1 / (1 + |L_u - L_v|^2); `similarity=component` the code's 1 / (1 + distance) of first principal components,
values above 0.9 set to 1; `similarity=cosine` its alternative. In the code only a tenth of the clients is
aggregated (`aggregated=0.1`); the rest go on alone (`held` is 0), and so does everyone in the first round.
FedSim with SR, SM, DM is `merge=replace`, `static`, `dynamic`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import override

from fedrec.federation.model import Citation, ServerRule, ServerSide
from fedrec.methods._math.likeness import first_components, squared_distances
from fedrec.methods._math.simplex import project_on_simplex
from fedrec.methods.fedmf import FedMF
from fedrec.plugins.em import ElasticMerging

_SAME = 0.9
"""The official code takes components more similar than this for equal."""


class BalancedMixture(ServerRule):
    """Gives each client its own mixture of all uploads, by data sizes and similarities."""

    @override
    def mix(self, name: str, uploads: Tensor, server: ServerSide) -> Tensor:
        wanted: Tensor = server.share + self.settings["alpha"] * self.similarity(uploads)
        if self.settings["weights"] == "simplex":
            return project_on_simplex(wanted)
        # The factor 1 / (1 + alpha) cancels when rows are divided by their sums.
        return wanted / wanted.sum(1, keepdim=True)

    def similarity(self, uploads: Tensor) -> Tensor:
        """How alike the tables of each pair of clients are, 1 for a client and itself."""
        if self.settings["similarity"] == "distance":
            return 1 / (1 + squared_distances(uploads))
        if self.settings["similarity"] == "cosine":
            unit = functional.normalize(uploads)
            return (unit @ unit.T).clamp(min=0)
        components = first_components(uploads.reshape(len(uploads), self.items, -1))
        alike = 1 / (1 + squared_distances(components).sqrt())
        return torch.where(alike > _SAME, 1.0, alike)


class FedEM(ElasticMerging):
    """Elastic merging of personalised aggregates, over matrix factorisation."""

    paper = Citation(
        "Chen et al.",
        "Breaking the aggregation bottleneck in federated recommendation: a personalized model "
        "merging approach",
        "AAAI",
        2026,
    )
    cost = "O(E S d + n m d) on the clients, O(n^2 m d) on the server."

    global_location = "personal"

    def __init__(self, settings: Mapping[str, Any], items: int) -> None:
        super().__init__(FedMF(settings, items), settings, items)
        self.server = BalancedMixture(settings, items)


METHOD = FedEM
