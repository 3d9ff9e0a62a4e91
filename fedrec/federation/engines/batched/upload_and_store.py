"""The end of a block's round: send uploads to the server, store private parameters on the clients."""

from collections.abc import Iterator

from torch import Tensor

from fedrec.federation.engines.batched.block import Block
from fedrec.federation.engines.batched.replay import CHUNK, Replay, Uploaded
from fedrec.federation.privacy.uploads import UploadNoise
from fedrec.federation.state.client_tensor import ClientTensor


def upload_and_store(block: Block, replay: Replay) -> None:
    """Send the uploads of a block, and store the parameters that stay on its clients."""
    BlockUpload(block, replay).finish()


class BlockUpload:
    """Sends and stores the parameters of a block after its round."""

    def __init__(self, block: Block, replay: Replay) -> None:
        self.block = block
        self.task = block.task
        self.replay = replay

    def finish(self) -> None:
        """Send the uploads, and store the parameters that stay on the clients."""
        self._record()
        for event in self.replay.uploads(tables=False):
            self._send_values(event.into, self.block.who, event.values)
        if self.task.needs.whole_tables:
            self._send_dense_tables()
        elif self._needs_whole_tables():
            for clients in self.replay.chunks():
                self._replay(clients)
        else:
            for event in self.replay.uploads(tables=True):
                self._send_changes(event)
        self._store()

    def _record(self) -> None:
        """Pass whole tables before and after training to the recorder."""
        recorder, names = self.task.recorder, self.task.recorded_tables
        if recorder is None or not names:
            return
        for clients in self.replay.chunks():
            before = {name: self.replay.start_tables(name, clients) for name in names}
            after = {name: self.replay.current_tables(name, clients) for name in names}
            recorder.record_training(self.block.who[clients], before, after)

    def _needs_whole_tables(self) -> bool:
        """Whether tables were replaced, or an upload is no change of a table that all clients share."""
        return bool(self.replay.rewritten) or any(map(self._is_whole, self.replay.uploads(tables=True)))

    def _is_whole(self, event: Uploaded) -> bool:
        """Whether an upload needs the whole table.

        It does if clients did not all start from the server's table. It also does if noise on every row
        cannot be added to the sum of all uploads.
        """
        noisy = self.task.privacy is not None and self.block.parameter(event.into).combine != "mean"
        sent_whole = event.transform is not None or event.name != event.into
        not_shared = event.name not in self.task.state.shared
        return sent_whole or not_shared or self.task.starts_from_own_copy(event.name) or noisy

    def _send_dense_tables(self) -> None:
        """Upload tables whose rows are all active."""
        for event in self.replay.uploads(tables=True):
            for clients in self.replay.chunks():
                rows = event.values[self.block.rows_of(clients)]
                tables = rows.unflatten(0, (clients.stop - clients.start, -1))
                self._send_tables(event, self.block.who[clients], tables)

    def _replay(self, clients: slice) -> None:
        """Replay the round on whole tables of some clients: upload them, and store rewritten ones."""
        block, replay = self.block, self.replay
        who, tables = block.who[clients], replay.tables(clients)
        for event in replay.events:
            replay.apply(event, clients, tables)
            if isinstance(event, Uploaded) and block.parameter(event.name).table:
                sent = replay.with_active_rows(tables[event.name], event.values, clients)
                self._send_tables(event, who, sent)
        for name, kept in self._client_tables():
            if name in replay.rewritten:
                kept.put(who, replay.with_active_rows(tables[name], block.values[name], clients))

    def _send_tables(self, event: Uploaded, who: Tensor, tables: Tensor) -> None:
        """Upload whole tables of some clients, or their transforms."""
        server = self.task.server
        if event.transform is None:
            self._send_values(event.into, who, tables)
        elif self.task.privacy is None:
            server.receive_transformed(event.into, who, tables, event.transform)
        else:
            # Each client clips its own transform and adds noise, so each transform is computed.
            for client, table in zip(who.split(1), tables, strict=True):
                sent = event.transform.of_one(table)
                self._send(event.into, client, sent - server.reference(event.into, client))

    def _store(self) -> None:
        """Store the parameters that stay on the clients; `_replay` has stored rewritten tables."""
        block, whole = self.block, self.task.needs.whole_tables
        for name, kept in self.task.state.client_tensors.items():
            if not block.parameter(name).table and block.parameter(name).location != "personal":
                kept.put(block.who, block.values[name])
        for name, kept in self._client_tables():
            if name not in block.values and self.task.starts_from_own_copy(name):
                # Nothing has read the table, so it is unchanged.
                continue
            if whole:
                kept.put(block.who, block.values[name].unflatten(0, (len(block), -1)))
            elif name not in self.replay.rewritten:
                self._store_rows(name, kept)

    def _store_rows(self, name: str, kept: ClientTensor) -> None:
        """Store the active rows of a table, and the start values or factor of all others."""
        block = self.block
        if not self.task.starts_from_own_copy(name):
            # All other rows of the copy are those of the server.
            state = self.task.state
            kept.fill(block.who, state.shared.get(name, state.initial[name]))
        if name in block.scaled:
            kept.scale(block.who, block.factor[name])
        kept.put_rows(block.row_owner, block.row_item, block.values[name])

    def _client_tables(self) -> Iterator[tuple[str, ClientTensor]]:
        for name, kept in self.task.state.client_tensors.items():
            if self.block.parameter(name).table and self.block.parameter(name).location != "personal":
                yield name, kept

    def _send_changes(self, event: Uploaded) -> None:
        """Upload changes of the table that all clients started from."""
        block, server, name = self.block, self.task.server, event.name
        # An unchanged factor is the same object as at the start.
        factor = None if event.factor is block.layout.ones else event.factor
        if factor is None and self.task.privacy is None:
            server.receive_active_rows(event.into, block.who, block.row_client, block.row_item, event.values)
            return
        start = before = block.start_rows(name)
        if factor is not None:
            before = factor[block.row_client].to(event.values.dtype).unsqueeze(1) * start
        change, kept = event.values - before, None
        if self.task.privacy is not None:
            shrunk = (block.layout.ones if factor is None else factor) - 1
            kept = self.task.privacy.shrinkage(self._change_norm(name, start, change, shrunk))
            change = change * kept[block.row_client].to(change.dtype).unsqueeze(1)
        server.receive_rows(event.into, block.who, block.row_client, block.row_item, change)
        if factor is not None:
            shrunk = factor - 1 if kept is None else (factor - 1) * kept
            server.receive_scaling(event.into, block.who, shrunk)
        self._send_noise(event.into, block.who)

    def _change_norm(self, name: str, start: Tensor, change: Tensor, shrunk: Tensor) -> Tensor:
        """The L1 norm of each client's change: that of its active rows plus the shrinkage of all others.

        `change` (rows, d) is the change of active rows beyond the shrinkage of `start`, their first values.
        """
        block = self.block
        whole = self.task.state.shared[name].double().abs().sum() * shrunk.abs()
        shrunken = shrunk[block.row_client].unsqueeze(1) * start
        gained = (change + shrunken).double().abs().sum(1) - shrunken.double().abs().sum(1)
        return whole.index_add(0, block.row_client, gained)

    def _send_values(self, into: str, who: Tensor, values: Tensor) -> None:
        """Upload some clients' values of a parameter: unchanged, or as clipped changes with noise."""
        server = self.task.server
        if self.task.privacy is None:
            server.receive_values(into, who, values)
        else:
            self._send(into, who, values - server.reference(into, who))

    def _send(self, into: str, who: Tensor, change: Tensor) -> None:
        """Upload whole changes of some clients, with clipping and noise if the run asks for privacy."""
        privacy = self.task.privacy
        if privacy is not None:
            kept = privacy.shrinkage(change.double().abs().flatten(1).sum(1))
            change = change * kept.to(change.dtype).reshape(-1, *(1 for _ in change.shape[1:]))
            if self.block.parameter(into).combine != "mean":
                noise = self._noise(privacy, into, who)
                self.task.server.receive(into, who, change + noise)
                return
        self.task.server.receive(into, who, change)
        self._send_noise(into, who)

    def _noise(self, privacy: UploadNoise, into: str, who: Tensor) -> Tensor:
        """The noise that some clients add to their uploads."""
        number = self.task.clients.global_index(who)
        return privacy.draw(self.task.state.parameters, into, number, self.task.round_)

    def _send_noise(self, into: str, who: Tensor) -> None:
        """Add noise on every number to the server's sum, as a further change of some clients at a time."""
        privacy = self.task.privacy
        if privacy is None:
            return
        at_once = max(1, CHUNK // self.block.parameter(into).count)
        for some in who.split(at_once):
            noise = self._noise(privacy, into, some)
            self.task.server.receive(into, some, noise)
