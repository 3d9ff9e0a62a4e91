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
from fedrec.errors import ConfigurationError, DivergenceError, did_you_mean
from fedrec.federation.clients import Clients
from fedrec.federation.engines.engine import Engine, engine_named
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
from fedrec.runs.faults import finite, fitting, with_device
from fedrec.runs.folder import clear_folder, finished_before
from fedrec.runs.membership import Membership
from fedrec.runs.registry import make_learner
from fedrec.runs.splits import split_of
from fedrec.runs.together import Together, evaluated_by, samples_of
from fedrec.runs.training import Training


@dataclass(frozen=True)
class _Asked:
    """A run that is asked for: where it is written, what it is of, and what is said of it."""

    out: Path
    split: Split
    samples: tuple[str, ...]
    """What decides what it trains on."""
    identity: dict[str, Any]
    remarks: dict[str, Any]


@dataclass(frozen=True)
class _Common:
    """What the runs of a command have in common."""

    data: Path
    method: str
    paper: str
    settings: Mapping[str, Any]
    sources: Mapping[str, str]
    also_of: Sequence[str]
    """The other papers with these settings."""
    seed: int
    place: torch.device
    engine: Engine
    records: tuple[str, ...]
    remarks: Mapping[str, Any]
    """Of every run; what decides no number, and does not identify it. Memory decides last bits of some."""

    def asked(self, split: Split, out: Path) -> _Asked:
        """The run on a split."""
        identity = {
            "dataset": split.dataset,
            "method": self.method,
            "paper": self.paper,
            "protocol": split.protocol.as_dict(),
            "seed": self.seed,
            "settings": self.settings,
            "sources": self.sources,
            "engine": self.engine.name,
            "device": self.place.type,
            "split": split.content_hash(),
            "interactions": split.interactions,
            "code": run_fingerprint(self.method, self.engine.name),
        }
        # Another paper's run it is where the protocol is nobody's own.
        also_of = [] if split.protocol.paper is not None else list(self.also_of)
        where = os.path.relpath(self.data, out)
        remarks = {"also_settings_of": also_of, "data": where, **self.remarks}
        return _Asked(out, split, samples_of(self.data / split.protocol.name), identity, remarks)


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
    _check_recorded(records, with_model=with_model)
    methods = load_methods(methods_file)
    method = canonical(methods, method)
    settings, sources, paper = resolve(methods, method, paper, data.name, changes)
    check_code(method, [setting for setting, source in sources.items() if source == "user"])
    membership = Membership.of_environment()
    _check_also({protocol: out}, also, paper, record)
    run = f"{method} on {data.name}"
    with with_device(run, "the GPU"), fitting(run, "the GPU"):
        # Whoever asks a GPU how much of its memory is free takes some of it.
        place = device_named(device, membership.local_rank)
        memory = memory_for_clients(place, memory_gib)
    alike = papers_alike(methods, method, paper, data.name, changes)
    common = _Common(
        data=data,
        method=method,
        paper=paper,
        settings=settings,
        sources=sources,
        also_of=[other for other in alike if other != paper],
        seed=seed,
        place=place,
        engine=engine_named(engine, memory.together, memory.alone),
        records=records,
        remarks={
            "memory_for_clients": memory.as_dict(),
            **({"processes": membership.size} if membership.size > 1 else {}),
            **({} if with_model else {MODEL: NOT_KEPT}),
        },
    )
    runs = [
        common.asked(split_of(data, name, paper, "--also" if name in also else "--protocol"), folder)
        for name, folder in {protocol: out, **also}.items()
    ]
    with membership.peers(place) as peers, _held([each.out for each in runs], peers):
        summaries: dict[Path, Mapping[str, Any]] = {}
        for each in runs:
            before = _before(each, records, peers, force=force, with_model=with_model, replace=replace)
            if before is not None:
                _check_kept(each.out, before, diverged)
                print(f"{each.out}: this run is finished already; --force trains it again.", file=sys.stderr)
                summaries[each.out] = before
        use_own_cores()
        for some in _together([each for each in runs if each.out not in summaries], records):
            forget_peak_memory(place)
            with with_device(run, str(place)):
                try:
                    with fitting(run, str(place)), finite():
                        written = _trained(some, common, record, diverged, checkpoint_seconds, peers)
                finally:
                    release_memory(place)
            summaries |= zip((each.out for each in some), written, strict=True)
    return summaries[out]


def _before(
    run: _Asked, records: tuple[str, ...], peers: Peers, *, force: bool, with_model: bool, replace: bool
) -> Mapping[str, Any] | None:
    """What the finished run in the folder of `run` says, where that is this very run and will do."""
    before = None
    if peers.leads:
        clear_folder(run.out)
        if not force:
            before = finished_before(run.out, run.identity, records, with_model=with_model, replace=replace)
    return peers.led(before)


def _trained(
    some: Sequence[_Asked],
    common: _Common,
    record: Sequence[str],
    diverged: str,
    checkpoint_seconds: float,
    peers: Peers,
) -> list[Mapping[str, Any]]:
    """What the files of runs that train alike say, once they are trained."""
    rounds, records = common.settings["rounds"], common.records
    clients = Clients.of_split(some[0].split, common.place, peers)
    recorder = Recorder.of(record, clients, rounds, peers) if record else None
    learner: Learner = make_learner(
        common.method, clients, common.settings, common.seed, common.engine, recorder, peers
    )
    if diverged == KEPT:
        learner = Diverging(learner)
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


def _check_recorded(records: Sequence[str], *, with_model: bool) -> None:
    if records and not with_model:
        raise ConfigurationError(
            "--record: what is recorded lies beside the model, in one file. Leave --without-model out."
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
