"""A run by name: finds split, settings, device and engine, and trains."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.records import merged_records, spelled_records
from fedrec.config.seeds import check_seed
from fedrec.data.split import Split
from fedrec.errors import (
    ConfigurationError,
    DeviceLostError,
    DivergenceError,
    MemoryTakenError,
    OutOfMemoryError,
    did_you_mean,
)
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.observe.recorder import Recorder
from fedrec.federation.peers import Peers
from fedrec.files.atomic import canonical_json
from fedrec.files.lock import locked
from fedrec.plan.fingerprint import check_code, run_fingerprint
from fedrec.plan.runs import DIVERGED, KEPT, MODEL, NOT_KEPT, OUTCOMES, REFUSED, papers_alike
from fedrec.progress import rounds_told
from fedrec.runs.device import (
    device_named,
    forget_peak_memory,
    memory_for_clients,
    release_memory,
    use_own_cores,
)
from fedrec.runs.diverging import Diverging
from fedrec.runs.folder import clear_folder, finished_before
from fedrec.runs.membership import Membership
from fedrec.runs.registry import make_learner
from fedrec.runs.splits import split_of
from fedrec.runs.training import Training

_MOST_CHARACTERS = 200
"""Of what torch says when memory runs out."""
_NO_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""What the driver of a GPU, torch on a CPU, and libraries say that have no error of their own for that."""
_DEVICE_LOST = ("CUDA error", "the GPU cannot")
"""What torch, and kernels of our own, say when a GPU has refused work."""


def train(
    *,
    data: Path,
    method: str,
    paper: str | None,
    protocol: str,
    seed: int,
    out: Path,
    changes: Sequence[str] = (),
    engine: str = "auto",
    device: str = "auto",
    methods_file: Path,
    memory_gib: float | None = None,
    checkpoint_seconds: float = 30.0,
    record: Sequence[str] = (),
    diverged: str = REFUSED,
    with_model: bool = True,
    force: bool = False,
    replace: bool = False,
) -> Mapping[str, Any]:
    """Train `method` with the settings of `paper` on the split of `protocol` in `data`; write to `out`.

    `record` tells what to record besides (see `fedrec.federation.observe.recorder`). Returns what `run.json`
    says. A finished run in `out` is taken as it is if it is this very one; another one is an error, unless
    `replace` replaces it; `force` replaces either. A training that diverges is an error where that is
    `refused`, and a result (see `fedrec.runs.diverging`) where it is `kept`. Without `with_model` no model
    is written: all but what looks inside of it can be built from such a run.
    """
    check_seed(seed)
    _check_diverged(diverged)
    _check_seconds(checkpoint_seconds)
    records = tuple(spelled_records(merged_records(record)))
    if records and not with_model:
        raise ConfigurationError(
            "--record: what is recorded lies beside the model, in one file. Leave --without-model out."
        )
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, sources, paper = resolve(methods, method, paper, data.name, changes)
    check_code(method, [setting for setting, source in sources.items() if source == "user"])
    membership = Membership.of_environment()
    run = f"{method} on {data.name}"
    with _with_device(run, "the GPU"), _fitting(run, "the GPU"):
        # Whoever asks a GPU how much of its memory is free takes some of it.
        place = device_named(device, membership.local_rank)
        memory = memory_for_clients(place, memory_gib)
    chosen = engine_named(engine, memory.together, memory.alone)
    split = split_of(data, protocol, paper)
    identity = {
        "dataset": split.dataset,
        "method": method,
        "paper": paper,
        "protocol": split.protocol.as_dict(),
        "seed": seed,
        "settings": settings,
        "sources": sources,
        "engine": chosen.name,
        "device": place.type,
        "split": split.content_hash(),
        "interactions": split.interactions,
        "code": run_fingerprint(method, chosen.name),
    }
    # Where the splits lie, and whose settings these are too, decides no number and does not identify the run;
    # memory decides last bits of some.
    remarks = {
        "also_settings_of": _sharing(methods, method, paper, split, changes),
        "data": os.path.relpath(data, out),
        "memory_for_clients": memory.as_dict(),
        **({"processes": membership.size} if membership.size > 1 else {}),
        **({} if with_model else {MODEL: NOT_KEPT}),
    }
    with membership.peers(place) as peers, _held(out, peers):
        before = None
        if peers.leads:
            clear_folder(out)
            if not force:
                before = finished_before(out, identity, records, with_model=with_model, replace=replace)
        before = peers.led(before)
        if before is not None:
            if DIVERGED in before and diverged == REFUSED:
                raise DivergenceError(
                    f"{out}: holds this run, which diverged: {before[DIVERGED]['why']} Take it as it is by "
                    "`--diverged kept`, or train it again by --force."
                )
            print(f"{out}: this run is finished already; --force trains it again.", file=sys.stderr)
            return before
        use_own_cores()
        forget_peak_memory(place)

        # A function of its own: what it holds is to be gone when memory is given back.
        def trained() -> Mapping[str, Any]:
            clients = Clients.of_split(split, place, peers)
            recorder = Recorder.of(record, clients, settings["rounds"], peers) if record else None
            learner = make_learner(method, clients, settings, seed, chosen, recorder, peers)
            if diverged == KEPT:
                learner = Diverging(learner)
            return Training(
                clients,
                learner,
                settings["rounds"],
                out,
                identity,
                checkpoint_seconds,
                records,
                remarks,
                peers,
            ).train()

        with _with_device(run, str(place)):
            try:
                with _fitting(run, str(place)), _finite():
                    return trained()
            finally:
                release_memory(place)


@contextmanager
def _held(out: Path, peers: Peers) -> Iterator[None]:
    """The folder of a run, held by the process that writes to it, which says there how far it is."""
    if not peers.leads:
        yield
        return
    with locked(out) as lock, rounds_told(lambda done: lock.note(canonical_json(asdict(done)))):
        yield


@contextmanager
def _finite() -> Iterator[None]:
    """Let a divergence that is refused say that it need not be."""
    try:
        yield
    except DivergenceError as error:
        raise DivergenceError(
            f"{error} Or let it be a result that says so: `--diverged kept`, in the configuration "
            "`diverged: kept`."
        ) from error


@contextmanager
def _fitting(run: str, place: str) -> Iterator[None]:
    """Let memory of a device that runs out be a `MemoryTakenError`, which says what to do about it.

    Not so where a client needs more than it is allowed, however much is free.
    """
    try:
        yield
    except (MemoryError, RuntimeError, OutOfMemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        elsewhere = "" if place == "cpu" else ", or use --device cpu"
        raise MemoryTakenError(
            f"{run}: it does not fit into the memory of {place}, or another program "
            f"holds it. Run fewer jobs on it at once, give clients less with --memory{elsewhere}. "
            f"({str(error)[:_MOST_CHARACTERS]})"
        ) from error


@contextmanager
def _with_device(run: str, place: str) -> Iterator[None]:
    """Let the loss of a GPU be a `DeviceLostError`, which says what to do about it."""
    try:
        yield
    except RuntimeError as error:
        first = _lost_by(error)
        if first is None:
            raise
        raise DeviceLostError(
            f"{run}: {place} takes no more work of this process. Where several share a GPU, an error of one "
            f"ends them all: the same command goes on from the last checkpoint. If it ends so with nothing "
            f"beside it, use --engine batched or --device cpu, and report it. "
            f"({str(first)[:_MOST_CHARACTERS]})"
        ) from error


def _lost_by(error: BaseException | None) -> BaseException | None:
    """The first error of those behind `error` by which a GPU was lost; None where none was."""
    if error is None:
        return None
    earlier = _lost_by(error.__context__)
    is_lost = isinstance(error, RuntimeError) and any(words in str(error) for words in _DEVICE_LOST)
    return earlier or (error if is_lost else None)


def _is_out_of_memory(error: BaseException | None) -> bool:
    """Whether memory ran out, or an engine says so for that reason."""
    if isinstance(error, OutOfMemoryError):
        return _is_out_of_memory(error.__cause__)
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or (
        isinstance(error, RuntimeError) and any(words in str(error) for words in _NO_MEMORY)
    )


def _check_diverged(word: str) -> None:
    if word not in OUTCOMES:
        raise ConfigurationError(
            f"--diverged {word}: write one of {', '.join(OUTCOMES)}.{did_you_mean(word, OUTCOMES)}"
        )


def _check_seconds(seconds: float) -> None:
    if not seconds >= 0:
        raise ConfigurationError(
            f"--checkpoint-seconds {seconds:g}: give seconds as a number from 0, for example 30."
        )


def _sharing(
    methods: Mapping[str, Any], method: str, paper: str, split: Split, changes: Sequence[str]
) -> list[str]:
    """The other papers whose run this is too: same settings, under a protocol that is nobody's own."""
    if split.protocol.paper is not None:
        return []
    alike = papers_alike(methods, method, paper, split.dataset, changes)
    return [other for other in alike if other != paper]
