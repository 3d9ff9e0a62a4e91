"""The clients of a federation and their data, on the device that trains."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Self

import numpy as np
import torch
from torch import Tensor

from fedrec.config.protocol import Protocol
from fedrec.data.split import TEST, TRAIN, VALIDATION, Split
from fedrec.errors import ConfigurationError, FederationError, SplitError
from fedrec.federation.collectives import SINGLE, Communicator
from fedrec.federation.draw_kernels import SAMPLE_KERNEL, samples
from fedrec.federation.draws import negatives
from fedrec.federation.pairs import PairSet, aranges
from fedrec.native.kernel import kernel_or_none
from fedrec.random.purpose import Purpose

_DRAWN_AT_ONCE = 1 << 22
"""Training interactions whose negatives are drawn at once without kernels."""


@dataclass(frozen=True)
class Samples:
    """The training samples of some clients in one round: positives and their negatives.

    `item` (samples) lists the samples client by client. Each positive precedes its negatives; `group` is the
    number of both together. `positives` (clients) is the number of positives of each client.
    """

    item: Tensor
    positives: Tensor
    group: int

    @cached_property
    def size(self) -> Tensor:
        """The number of samples of each client."""
        return self.positives * self.group

    @property
    def label(self) -> Tensor:
        """1 for positives, 0 for negatives (samples); read-only."""
        return _labels(len(self.item), self.group, self.item.device, torch.get_default_dtype())


@lru_cache(maxsize=2)
def _labels(samples: int, group: int, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Labels of a number of samples, cached because most rounds of a run share them."""
    label = torch.zeros(samples, dtype=dtype, device=device)
    label[::group] = 1
    return label


@dataclass(frozen=True)
class Clients:
    """The clients of this process: training items (by client, from `start`), held-out items and candidates.

    A client is an index into these; `user` is its number in the dataset. If several processes train a
    federation, draws use the global index of a client. So draws do not depend on the number of processes.
    """

    protocol: Protocol
    items: int
    user: Tensor
    start: Tensor
    train_item: Tensor
    held_out: dict[str, Tensor]
    candidates: dict[str, Tensor]
    forbidden: PairSet
    """Items that each client may not sample as a training negative."""
    first_index: int = 0
    remote_clients: int = 0
    """Number of clients on earlier processes (`first_index`) and on all other processes."""
    find_turns: Callable[[], Tensor] | None = None
    """Function that computes `turn`."""

    def __len__(self) -> int:
        return len(self.user)

    @property
    def total_clients(self) -> int:
        """Number of clients of all processes."""
        return len(self) + self.remote_clients

    def global_index(self, who: Tensor) -> Tensor:
        """Index of the clients `who` among the clients of all processes."""
        return who + self.first_index if self.first_index else who

    def local_index(self, numbers: Tensor) -> Tensor:
        """Local indices of those clients among `numbers` (global indices) that this process has."""
        if not self.remote_clients:
            return numbers
        place = numbers - self.first_index
        return place[(place >= 0) & (place < len(self))]

    @property
    def device(self) -> torch.device:
        """Device of the clients' data."""
        return self.user.device

    @cached_property
    def everyone(self) -> Tensor:
        """The indices of all clients."""
        return torch.arange(len(self), device=self.device)

    @cached_property
    def catalogue(self) -> Tensor:
        """The numbers of all items."""
        return torch.arange(self.items, device=self.device)

    def span(self, who: Tensor) -> slice | None:
        """Slice of consecutive clients that `who` is, if it is a view of `everyone`; otherwise None.

        The check compares memory addresses, so the CPU does not wait for a GPU.
        """
        if who.untyped_storage().data_ptr() != self.everyone.untyped_storage().data_ptr():
            return None
        first = who.storage_offset()
        return slice(first, first + len(who)) if who.is_contiguous() else None

    def is_catalogue(self, items: Tensor) -> bool:
        """Whether `items` is an expanded view of `catalogue`, by their memory addresses."""
        same = items.data_ptr() == self.catalogue.data_ptr() and items.shape[1:] == self.catalogue.shape
        return same and items.stride() == (0, 1)

    @cached_property
    def sizes(self) -> Tensor:
        """Number of training interactions of each client."""
        return self.start.diff()

    @cached_property
    def turn(self) -> Tensor:
        """Index of each training item in its client's order of time, from 0 for the oldest."""
        if self.find_turns is None:
            raise FederationError(
                "the order of these clients' interactions is unknown. Choose a method that reads no history."
            )
        return self.find_turns()

    @cached_property
    def by_time(self) -> Tensor:
        """The training items of all clients, each client's from the oldest to the latest."""
        client = torch.repeat_interleave(self.everyone, self.sizes)
        ordered = torch.empty_like(self.train_item)
        ordered[self.start[client] + self.turn] = self.train_item
        return ordered

    @classmethod
    def of_split(cls, split: Split, device: torch.device, communicator: Communicator = SINGLE) -> Self:
        """The clients of a split, or the share of this process."""
        if communicator.size > 1:
            return cls._of_share(split, device, communicator)
        # Rows are sorted by user.
        begins = np.diff(split.user, prepend=-1) != 0
        users, dense = split.user[begins], np.cumsum(begins) - 1
        trained = split.part == TRAIN
        start = np.concatenate(([0], np.cumsum(np.bincount(dense[trained], minlength=len(users)))))
        held_out = {"validation": split.pairs_of(VALIDATION)[1], "test": split.pairs_of(TEST)[1]}
        candidates = {"validation": split.candidates.validation, "test": split.candidates.test}
        hidden = trained if split.protocol.negative_pool == "exclude_train" else slice(None)
        pairs = [(dense[hidden], split.item[hidden])]
        if split.protocol.negative_pool == "exclude_train_and_candidates":
            everyone = np.arange(len(users))
            pairs += [(everyone.repeat(items.shape[1]), items.ravel()) for items in candidates.values()]
        client, item = (np.concatenate(column) for column in zip(*pairs, strict=True))

        def tensor(values: np.ndarray) -> Tensor:
            return torch.from_numpy(np.ascontiguousarray(values).astype(np.int64)).to(device)

        return cls(
            protocol=split.protocol,
            items=split.items,
            user=tensor(users),
            start=tensor(start),
            train_item=tensor(split.item[trained]),
            held_out={part: tensor(items) for part, items in held_out.items()},
            candidates={part: tensor(items) for part, items in candidates.items()},
            forbidden=PairSet.of(tensor(client), tensor(item), len(users), split.items),
            # Held-out items are the latest, so the turns of training items also count among training items.
            find_turns=lambda: tensor(split.turns()[trained]),
        )

    @classmethod
    def _of_share(cls, split: Split, device: torch.device, communicator: Communicator) -> Self:
        """The share of this process in the clients of a split, without data of other clients."""
        first_rows = np.flatnonzero(np.diff(split.user, prepend=-1))
        count = len(first_rows)
        if count < communicator.size:
            raise ConfigurationError(
                f"{communicator.size} processes cannot share {count} clients. Start at most {count}."
            )
        own = communicator.span(count)
        rows = slice(first_rows[own.start], first_rows[own.stop] if own.stop < count else None)
        candidates = replace(
            split.candidates, validation=split.candidates.validation[own], test=split.candidates.test[own]
        )
        share = replace(
            split,
            user=split.user[rows],
            item=split.item[rows],
            part=split.part[rows],
            candidates=candidates,
            find_turns=lambda: split.turns()[rows],
        )
        clients = cls.of_split(share, device)
        return replace(clients, first_index=own.start, remote_clients=count - len(clients))

    def subset(self, who: Tensor) -> Self:
        """Only the clients `who` (sorted)."""
        ends = self.sizes[who].cumsum(0)
        return replace(
            self,
            user=self.user[who],
            start=torch.cat((torch.zeros(1, dtype=torch.int64, device=self.device), ends)),
            train_item=self.training(who)[0],
            held_out={part: items[who] for part, items in self.held_out.items()},
            candidates={part: items[who] for part, items in self.candidates.items()},
            forbidden=self.forbidden.subset(who),
            find_turns=lambda: self.turn[self._training_rows(who)],
        )

    def training(self, who: Tensor) -> tuple[Tensor, Tensor]:
        """The training items of the clients `who`, and for each its client's index in `who`."""
        sizes = self.sizes[who]
        place = torch.repeat_interleave(torch.arange(len(who), device=self.device), sizes)
        return self.train_item[self.start[who][place] + aranges(sizes)], place

    def _training_rows(self, who: Tensor) -> Tensor:
        """Indices of the training items of the clients `who` among those of all clients."""
        sizes = self.sizes[who]
        return torch.repeat_interleave(self.start[who], sizes) + aranges(sizes)

    def samples(
        self,
        who: Tensor,
        per_positive: int,
        seed: int,
        round_: int,
        purpose: Purpose = Purpose.NEGATIVES,
    ) -> Samples:
        """The samples of the clients `who` in `round_`: each training interaction and its negatives."""
        item = self._with_negatives(who, per_positive, seed, round_, purpose)
        positives = self.sizes if who is self.everyone else self.sizes[who]
        return Samples(item.reshape(-1), positives, item.shape[1])

    def _with_negatives(self, who: Tensor, count: int, seed: int, round_: int, purpose: Purpose) -> Tensor:
        """The training items of the clients `who`, each followed by its negatives: (rows, 1 + count)."""
        kernel = kernel_or_none(SAMPLE_KERNEL, self.device)
        if kernel is not None:
            data = (self.start, self.train_item, self.forbidden)
            rows = (self.start[:-1], len(self.train_item)) if who is self.everyone else None
            return samples(kernel, who, *data, count, seed, round_, purpose, self.first_index, rows)
        positive, owner = self.training(who)
        places = aranges(self.sizes[who])
        item = positive.new_empty(len(owner), 1 + count)
        item[:, 0] = positive
        # Sampling needs several times the memory of its result, so a loop draws for some interactions each.
        for first in range(0, len(owner), _DRAWN_AT_ONCE):
            some = slice(first, first + _DRAWN_AT_ONCE)
            item[some, 1:] = negatives(
                who[owner[some]], places[some], self.forbidden, count, seed, round_, purpose, self.first_index
            )
        return item

    def check_pools(self, per_positive: int) -> None:
        """Raise `SplitError` unless every client has enough items to draw negatives from."""
        fewest, who = (self.items - self.forbidden.sizes()).min(0)
        if fewest < per_positive:
            raise SplitError(
                f"user {int(self.user[who])} may draw only {int(fewest)} items as training negatives under "
                f"{self.protocol.name}, but needs {per_positive} distinct ones per training row. Lower the "
                "setting negatives."
            )
