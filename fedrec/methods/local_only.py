"""local-only: matrix factorisation on every client alone, without any communication.

A reference, not a method of a paper: it knows nothing of other users, so under an honest protocol it
can do no better than chance on items it never saw.
"""

from dataclasses import replace
from typing import ClassVar

from fedrec.federation.model import Citation, Client, Parameter
from fedrec.methods.fedmf import FedMF


class LocalOnly(FedMF):
    """FedMF whose item table stays on the client too."""

    paper: ClassVar[Citation | None] = None

    def parameters(self) -> dict[str, Parameter]:
        """Everything is private."""
        return {name: replace(part, location="private") for name, part in super().parameters().items()}

    def local_round(self, client: Client) -> None:
        """Train, upload nothing."""
        self.train(client)


METHOD = LocalOnly
