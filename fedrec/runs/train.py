"""A run by name: finds split, settings, device and engine, and trains."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from fedrec.config.methods import canonical, load_methods, resolve
from fedrec.config.protocol import full_name
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
from fedrec.federation.learner import Learner
from fedrec.federation.observe.recorder import Recorder
from fedrec.federation.peers import Peers
from fedrec.files.atomic import canonical_json
from fedrec.files.lock import locked
from fedrec.plan.fingerprint import check_code, run_fingerprint
from fedrec.plan.runs import DIVERGED, KEPT, MODEL, NOT_KEPT, OUTCOMES, REFUSED, papers_alike
from fedrec.progress import RoundsDone, rounds_told
from fedrec.runs.checkpoint import Checkpoints
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
from fedrec.runs.together import Together, evaluated_by, samples_of
from fedrec.runs.training import Training

_MOST_CHARACTERS = 200
"""Of what torch says when memory runs out."""
_NO_MEMORY = ("out of memory", "can't allocate memory", "ALLOC_FAILED")
"""What the driver of a GPU, torch on a CPU, and libraries say that have no error of their own for that."""
_DEVICE_LOST = ("CUDA error", "the GPU cannot")
"""What torch, and kernels of our own, say when a GPU has refused work."""


@dataclass(frozen=True)
class _Asked:
    """A run that is asked for: where it is written, what it is of, and what is said of it."""

    out: Path
    split: Split
    samples: tuple[str, ...]
    """What decides what it trains on."""
    identity: dict[str, Any]
    remarks: dict[str, Any]


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
    also: Mapping[str, Path] = MappingProxyType({}),
) -> Mapping[str, Any]:
    """Train `method` with the settings of `paper` on the split of `protocol` in `data`; write to `out`.

    `record` tells what to record besides (see `fedrec.federation.observe.recorder`). Returns what `run.json`
    says. A finished run in `out` is taken as it is if it is this very one; another one is an error, unless
    `replace` replaces it; `force` replaces either. A training that diverges is an error where that is
    `refused`, and a result (see `fedrec.runs.diverging`) where it is `kept`. Without `with_model` no model
    is written: all but what looks inside of it can be built from such a run.

    `also` names further protocols, and the folders of their runs, which are the same otherwise: those whose
    clients train on the same samples are trained once (see `fedrec.runs.together`).
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
    _check_also({protocol: out}, also, paper, record)
    run = f"{method} on {data.name}"
    with _with_device(run, "the GPU"), _fitting(run, "the GPU"):
        # Whoever asks a GPU how much of its memory is free takes some of it.
        place = device_named(device, membership.local_rank)
        memory = memory_for_clients(place, memory_gib)
    chosen = engine_named(engine, memory.together, memory.alone)

    def asked(name: str, folder: Path) -> _Asked:
        split = split_of(data, name, paper, "--also" if name in also else "--protocol")
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
        # Where the splits lie, and whose settings these are too, decides no number and does not identify the
        # run; memory decides last bits of some.
        remarks = {
            "also_settings_of": _sharing(methods, method, paper, split, changes),
            "data": os.path.relpath(data, folder),
            "memory_for_clients": memory.as_dict(),
            **({"processes": membership.size} if membership.size > 1 else {}),
            **({} if with_model else {MODEL: NOT_KEPT}),
        }
        return _Asked(folder, split, samples_of(data / split.protocol.name), identity, remarks)

    runs = [asked(name, folder) for name, folder in {protocol: out, **also}.items()]
    with membership.peers(place) as peers, _held([each.out for each in runs], peers):
        summaries: dict[Path, Mapping[str, Any]] = {}
        for each in runs:
            before = None
            if peers.leads:
                clear_folder(each.out)
                kept = {"with_model": with_model, "replace": replace}
                before = None if force else finished_before(each.out, each.identity, records, **kept)
            before = peers.led(before)
            if before is not None:
                _check_kept(each.out, before, diverged)
                print(f"{each.out}: this run is finished already; --force trains it again.", file=sys.stderr)
                summaries[each.out] = before
        use_own_cores()

        # A function of its own: what it holds is to be gone when memory is given back.
        def trained(some: Sequence[_Asked]) -> list[Mapping[str, Any]]:
            clients = Clients.of_split(some[0].split, place, peers)
            recorder = Recorder.of(record, clients, settings["rounds"], peers) if record else None
            learner = make_learner(method, clients, settings, seed, chosen, recorder, peers)
            if diverged == KEPT:
                learner = Diverging(learner)
            return _trained(some, clients, learner, settings["rounds"], checkpoint_seconds, records, peers)

        for some in _together([each for each in runs if each.out not in summaries], records):
            forget_peak_memory(place)
            with _with_device(run, str(place)):
                try:
                    with _fitting(run, str(place)), _finite():
                        written = trained(some)
                finally:
                    release_memory(place)
            summaries |= zip((each.out for each in some), written, strict=True)
    return summaries[out]


def _trained(
    some: Sequence[_Asked],
    clients: Clients,
    learner: Learner,
    rounds: int,
    checkpoint_seconds: float,
    records: tuple[str, ...],
    peers: Peers,
) -> list[Mapping[str, Any]]:
    """What the files of runs that train alike say, once they are trained."""
    everyones = [clients, *(evaluated_by(clients, each.split) for each in some[1:])]
    first, *others = (
        (own, learner, rounds, each.out, each.identity, checkpoint_seconds, records, each.remarks, peers)
        for own, each in zip(everyones, some, strict=True)
    )
    together = Together(*first, others=[Training(*each) for each in others])
    return [together.train(), *together.written]


def _together(runs: Sequence[_Asked], records: Sequence[str]) -> list[list[_Asked]]:
    """The runs in groups that are trained once, of each the one first that is least far by its checkpoint."""
    groups: dict[tuple[str, ...], list[_Asked]] = {}
    for run in runs:
        groups.setdefault(run.samples, []).append(run)
    return [sorted(group, key=lambda run: _rounds_kept(run, records)) for group in groups.values()]


def _rounds_kept(run: _Asked, records: Sequence[str]) -> int:
    return Checkpoints(run.out, run.identity, records, 0).rounds_noted


def _check_kept(out: Path, before: Mapping[str, Any], diverged: str) -> None:
    """Raise `DivergenceError` where a finished run diverged and that is to be an error."""
    if DIVERGED in before and diverged == REFUSED:
        raise DivergenceError(
            f"{out}: holds this run, which diverged: {before[DIVERGED]['why']} Take it as it is by "
            "`--diverged kept`, or train it again by --force."
        )


def _check_also(
    first: Mapping[str, Path], also: Mapping[str, Path], paper: str, record: Sequence[str]
) -> None:
    """Raise `ConfigurationError` where further protocols cannot be trained with the first one."""
    if also and record:
        raise ConfigurationError("--also: does not go with --record. Train such runs one by one.")
    if not also:
        return
    asked = [*first.items(), *also.items()]
    names = {full_name(protocol, paper) for protocol, _ in asked}
    if min(len(names), len({folder.resolve() for _, folder in asked})) < len(asked):
        raise ConfigurationError("--also: give each protocol once, and each a folder of its own.")


@contextmanager
def _held(folders: Sequence[Path], peers: Peers) -> Iterator[None]:
    """The folders of runs, held by the process that writes to them, which says there how far it is."""
    if not peers.leads:
        yield
        return
    with ExitStack() as stack:
        locks = [stack.enter_context(locked(folder)) for folder in folders]

        def note(done: RoundsDone) -> None:
            for lock in locks:
                lock.note(canonical_json(asdict(done)))

        stack.enter_context(rounds_told(note))
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
