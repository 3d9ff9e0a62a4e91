"""Dense client state, which stores every number of every client."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.federation.pairs import keys
from fedrec.federation.state.client_tensor import ClientTensor
from fedrec.federation.table_rows import put_rows, take_rows


class DenseClientTensor(ClientTensor):
    """A parameter of every client as one tensor: (clients, ...)."""

    def __init__(self, value: Tensor, clients: int) -> None:
        self.value = value.expand(clients, *value.shape).clone()

    @override
    def whole(self, who: Tensor) -> Tensor:
        return self.value.index_select(0, who)

    @override
    def view(self, span: slice) -> Tensor:
        return self.value[span]

    @override
    def put(self, who: Tensor, values: Tensor) -> None:
        self.value.index_copy_(0, who, values)

    @override
    def modify(self, who: Tensor, change: Callable[[Tensor], None]) -> None:
        # The values of all clients can change in place, a selection only in a copy.
        everyone = len(who) == len(self.value)
        some = self.value if everyone else self.whole(who)
        change(some.view(len(who), some.shape[1:].numel()))
        if not everyone:
            self.put(who, some)

    @override
    def rows(self, who: Tensor, item: Tensor) -> Tensor:
        return take_rows(self._all_rows(), keys(who, item, self.value.shape[1]))

    @override
    def put_rows(self, who: Tensor, item: Tensor, rows: Tensor) -> None:
        put_rows(self._all_rows(), keys(who, item, self.value.shape[1]), rows)

    def _all_rows(self) -> Tensor:
        """A view of the rows of all clients' tables: (clients x items, d)."""
        return self.value.flatten(0, -2)

    @override
    def scale(self, who: Tensor, factor: Tensor) -> None:
        everyone = torch.ones(len(self.value), dtype=self.value.dtype, device=self.value.device)
        everyone.index_copy_(0, who, factor.to(self.value.dtype))
        self.value.mul_(everyone[:, None, None])

    @override
    def fill(self, who: Tensor, value: Tensor) -> None:
        if len(who) == len(self.value):
            self.value.copy_(value)
        else:
            self.value[who] = value

    @override
    def tensors(self) -> dict[str, Tensor]:
        return {"": self.value}

    @override
    def load(self, tensors: Mapping[str, Tensor]) -> None:
        self.value = tensors[""].to(self.value.device)
