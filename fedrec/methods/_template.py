"""Template: one sentence that says what the method is; `fedrec methods` shows it.

A new method starts as federated matrix factorisation, which trains at once. Change what differs in yours, and
these lines, too; docs/add-a-method.md explains each function.

    score     p_u . q_i
    client    trains p_u and its copy of Q together
    upload    Q_u
    server    Q = weighted mean of all Q_u
    scored    own p_u with the server's newest Q
"""

from torch import Tensor

from fedrec.federation.model import Client, Initial, Method, Parameter, Weights, dot, item_table, vector


class Template(Method):
    """Full name of the method."""

    # Its paper: Citation("Authors", "Title", "Venue", 2026), imported from fedrec.federation.model; or None.
    paper = None
    # The cost of a round, for the table of costs.
    cost = "O(E S d) on the clients, O(sum of R_u d) on the server (S samples, R_u sampled items of u)."

    def parameters(self) -> dict[str, Parameter]:
        """Parameters and their locations: Q is shared, p stays on the client."""
        # self.settings holds the settings of config/methods.yaml; those of your own are added there.
        d, start = self.settings["d"], Initial("normal", 1.0)
        return {
            # A row per item, on the server: clients train a copy, and may upload it.
            "Q": item_table(self.items, d, "shared", start),
            # A vector per user. A private parameter can never be uploaded.
            "p": vector(d, "private", start),
        }

    def score(self, w: Weights, items: Tensor) -> Tensor:
        """Inner product of user vector p and item row q."""
        # Engines may add axes in front of those you see: sum over the last one, as dot does.
        return dot(w.Q[items], w.p)

    def local_round(self, client: Client) -> None:
        """Train p and Q together, upload Q."""
        # fedrec records this function: it may depend on settings and client.round_, not on data.
        rates = {"Q": self.item_rate(), "p": self.settings["rate"]}
        self.fit(client, self.step(client, rates))
        client.upload("Q")


METHOD = Template
