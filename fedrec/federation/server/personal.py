"""Per-client server values as a rule sees them: the values of all clients of all processes."""

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.model.server_rule import PersonalValues, Uploads
from fedrec.federation.server.mixing import clients_at_once, weighted_sums
from fedrec.federation.state.client_tensor import ClientTensor


class PersonalTensor(PersonalValues):
    """A parameter with one value per client, of which this process stores those of its own clients.

    Global indices name the clients.
    """

    def __init__(self, kept: ClientTensor, clients: int, communicator: Communicator = SINGLE) -> None:
        self._kept = kept
        self._clients = clients
        self._communicator = communicator

    @override
    def whole(self, who: Tensor) -> Tensor:
        if self._communicator.size == 1:
            return self._kept.whole(who)
        # Each process sends the values of its own clients, in the order of `who`.
        ends = [span.stop for span in self._communicator.spans(self._clients)]
        holder = torch.bucketize(who, torch.tensor(ends, device=who.device), right=True)
        parts = self._communicator.all_gather(self._kept.whole(self._own(who)[0]))
        return torch.empty_like(parts).index_copy_(0, holder.argsort(stable=True), parts)

    @override
    def put(self, who: Tensor, values: Tensor) -> None:
        own, mine = self._own(who)
        self._kept.put(own, values[mine])

    @override
    def fill(self, who: Tensor, value: Tensor) -> None:
        own, _ = self._own(who)
        if len(own):
            self._kept.fill(own, value)

    @override
    def sums(self, who: Tensor, weights: Tensor) -> Tensor:
        own, mine = self._own(who)
        by = weights[..., mine]
        none = self._kept.whole(own[:0])
        at_once = clients_at_once(none.shape[1:])
        total = weighted_sums(none, by[..., :0])
        for some, share in zip(own.split(at_once), by.split(at_once, dim=-1), strict=True):
            total += weighted_sums(self._kept.whole(some), share)
        return self._communicator.all_reduce(total)

    @override
    def mix(self, who: Tensor, uploads: Uploads, weights: Tensor) -> None:
        own, _ = self._own(who)
        mixed = uploads.mixed(weights)
        self._kept.put(own, mixed.unflatten(1, self._kept.whole(own[:0]).shape[1:]))

    def _own(self, who: Tensor) -> tuple[Tensor, Tensor | slice]:
        """The local indices of the clients of this process among `who`, and their positions in `who`."""
        if self._communicator.size == 1:
            return who, slice(None)
        span = self._communicator.span(self._clients)
        mine = ((who >= span.start) & (who < span.stop)).nonzero().squeeze(1)
        return who[mine] - span.start, mine
