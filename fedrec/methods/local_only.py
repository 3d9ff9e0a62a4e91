"""local-only: matrix factorisation on every client alone, without any communication.

A reference, not a method of a paper. It has no data of other users. So under a protocol without a leak it
ranks unseen items no better than chance.
"""

from dataclasses import replace
from typing import ClassVar

from fedrec.federation.model import Citation, Client, Parameter
from fedrec.methods.fedmf import FedMF


class LocalOnly(FedMF):
    """FedMF whose item table also stays on the client."""

    paper: ClassVar[Citation | None] = None

    def parameters(self) -> dict[str, Parameter]:
        """Everything is private."""
        return {name: replace(part, location="private") for name, part in super().parameters().items()}

    def local_round(self, client: Client) -> None:
        """Train, upload nothing."""
        self.train(client)


METHOD = LocalOnly
