"""A run by name: finds split, settings, device and engine, and trains."""

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from fedrec.config.methods import Methods, resolve
from fedrec.config.protocol import full_name
from fedrec.data.split import Split
from fedrec.errors import ConfigurationError, DivergenceError
from fedrec.federation.clients import Clients
from fedrec.federation.collectives import Communicator
from fedrec.federation.engines.engine import Engine, engine_named
from fedrec.federation.learner import Learner
from fedrec.federation.observe.recorder import Recorder
from fedrec.files.atomic import canonical_json
from fedrec.files.lock import locked
from fedrec.plan.fingerprint import check_code, run_fingerprint
from fedrec.plan.runs import (
    ALWAYS,
    DIVERGED,
    KEPT,
    LARGE_MODEL,
    MODEL,
    NEVER,
    NOT_KEPT,
    REFUSED,
    WANTED,
    papers_with_equal_settings,
)
from fedrec.plan.train_request import AUTO, TrainRequest
from fedrec.progress import RoundsDone, is_shown, report_rounds
from fedrec.runs.checkpoint import Checkpoints
from fedrec.runs.device import (
    ClientMemory,
    device_named,
    forget_peak_memory,
    keep_freed_memory,
    memory_for_clients,
    release_memory,
    use_own_cores,
)
from fedrec.runs.divergence import DivergenceTolerant
from fedrec.runs.engine_check import CheckedEngine
from fedrec.runs.error_translation import (
    translate_device_loss,
    translate_divergence,
    translate_out_of_memory,
    translate_score_shape,
)
from fedrec.runs.folder import clear_folder, finished_before, other_content
from fedrec.runs.process_group import ProcessGroup
from fedrec.runs.record import megabytes
from fedrec.runs.registry import make_learner
from fedrec.runs.setting_files import FILE_CHECKSUMS, checksums, setting_paths, with_file_tables
from fedrec.runs.shared_training import SharedTraining, evaluated_by, samples_of
from fedrec.runs.splits import split_of
from fedrec.runs.training import Training

_OF_MODEL = {ALWAYS: WANTED, NEVER: NOT_KEPT}
"""What run.json says of a model that was asked for, or was not to be written."""


@dataclass(frozen=True)
class _Run:
    """A run with everything that identifies it."""

    out: Path
    split: Split
    samples: tuple[str, ...]
    """What decides what it trains on."""
    identity: dict[str, Any]
    remarks: dict[str, Any]
    """Facts that decide no number, and do not identify it."""


@dataclass(frozen=True)
class _Context:
    """A request with its settings, its device and its engine: what its runs have in common."""

    request: TrainRequest
    method: str
    """Spelt canonically."""
    paper: str
    settings: Mapping[str, Any]
    trained: Mapping[str, Any]
    """The settings with the content of the files they name."""
    sources: Mapping[str, str]
    also_of: Sequence[str]
    """The other papers with these settings."""
    place: torch.device
    engine: Engine
    remarks: Mapping[str, Any]
    """Of every run. Memory decides last bits of some."""

    def runs(self) -> list[_Run]:
        """The run of each protocol."""
        request = self.request
        first = self._run(split_of(request.data, request.protocol, self.paper, "--protocol"), request.out)
        others = (
            self._run(split_of(request.data, protocol, self.paper, "--also-protocol"), out)
            for protocol, out in request.also.items()
        )
        return [first, *others]

    def _run(self, split: Split, out: Path) -> _Run:
        identity = {
            "dataset": split.dataset,
            "method": self.method,
            "paper": self.paper,
            "protocol": split.protocol.as_dict(),
            "seed": self.request.seed,
            "settings": self.settings,
            "sources": self.sources,
            "engine": self.engine.name,
            "device": self.place.type,
            "split": split.content_hash(),
            "interactions": split.interactions,
            "code": run_fingerprint(self.method, self.engine.name),
        }
        if given := checksums(self.trained):
            identity[FILE_CHECKSUMS] = given
        # Another paper's run it is where the protocol is nobody's own.
        also_of = [] if split.protocol.paper is not None else list(self.also_of)
        data = self.request.data
        remarks = {"also_settings_of": also_of, "data": os.path.relpath(data, out), **self.remarks}
        return _Run(out, split, samples_of(data / split.protocol.name), identity, remarks)


def train(request: TrainRequest, methods: Methods) -> Mapping[str, Any]:
    """Train what is asked for, write its folder, and return the content of its `run.json`.

    A finished run in the folder is taken as it is if it is this very one; another one is an error, unless the
    request replaces it.
    """
    request.check()
    request = request.with_full_name(methods)
    membership = ProcessGroup.of_environment()
    context = _context(request, methods, membership)
    runs = context.runs()
    with (
        membership.communicator(context.place) as communicator,
        _locked_folders([run.out for run in runs], communicator),
    ):
        summaries = _finished_before(runs, request, communicator)
        use_own_cores()
        keep_freed_memory()
        for group in _trained_once([run for run in runs if run.out not in summaries], request.records):
            summaries |= _train_group(group, context, communicator)
    return summaries[request.out]


def _context(request: TrainRequest, methods: Methods, membership: ProcessGroup) -> _Context:
    """Settings, device and engine of a request; `ConfigurationError` where there are none such."""
    method = request.method
    settings, sources, paper = resolve(methods, method, request.paper, request.dataset, request.changes)
    check_code(method, [setting for setting, source in sources.items() if source == "user"])
    _check_also(request, paper)
    name = f"{method} on {request.dataset}"
    with translate_device_loss(name, "the GPU"), translate_out_of_memory(name, "the GPU"):
        # Whoever asks a GPU how much of its memory is free takes some of it.
        place = device_named(request.device, membership.local_rank)
        memory = memory_for_clients(place, request.memory_gib)
    alike = papers_with_equal_settings(methods, method, paper, request.dataset, request.changes)
    return _Context(
        request=request,
        method=method,
        paper=paper,
        settings=settings,
        trained=with_file_tables(settings, setting_paths(methods, method, settings), request.data),
        sources=sources,
        also_of=[other for other in alike if other != paper],
        place=place,
        engine=_engine(request, method, settings, memory),
        remarks={
            "memory_for_clients": memory.as_dict(),
            **({"processes": membership.size} if membership.size > 1 else {}),
            **({MODEL: _OF_MODEL[request.model]} if request.model in _OF_MODEL else {}),
        },
    )


def _engine(request: TrainRequest, method: str, settings: Mapping[str, Any], memory: ClientMemory) -> Engine:
    """The engine that is asked for, compared with the loop before it trains; the loop itself is not."""
    engine = engine_named(request.engine, memory.together, memory.alone)
    if engine.name == "loop":
        return engine
    bounds = (memory.together, memory.alone)
    return CheckedEngine(
        engine, method, settings, bounds, partial(run_fingerprint, method), strict=request.strict
    )


def _finished_before(
    runs: Sequence[_Run], request: TrainRequest, communicator: Communicator
) -> dict[Path, Mapping[str, Any]]:
    """The summaries of runs that are finished already, by their folders."""
    summaries: dict[Path, Mapping[str, Any]] = {}
    for run in runs:
        summary = _existing_result(run, request, communicator)
        if summary is not None:
            _check_recorded(run.out, summary, request.diverged)
            if is_shown():
                print(f"{run.out}: this run is finished. --force trains it again.", file=sys.stderr)
            summaries[run.out] = summary
    return summaries


def _existing_result(
    run: _Run, request: TrainRequest, communicator: Communicator
) -> Mapping[str, Any] | None:
    """The summary of the finished run in the folder of `run`, where that is this very run and will do."""
    summary = None
    if communicator.is_root:
        clear_folder(run.out)
        _warn_of_other_files(run.out)
        if not request.force:
            summary = finished_before(
                run.out,
                _compared(run.identity, request),
                request.records,
                model=request.kept_model,
                replace=request.replace,
            )
    return communicator.broadcast(summary)


def _warn_of_other_files(folder: Path) -> None:
    """Say that the folder of a run holds other files, which stay: somebody may have named the wrong one."""
    if others := other_content(folder):
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        print(
            f"{folder}: contains other files ({shown}). fedrec keeps them, and writes this run beside them.",
            file=sys.stderr,
        )


def _compared(identity: Mapping[str, Any], request: TrainRequest) -> dict[str, Any]:
    """The identity without an engine or device that the request leaves open: any of them trains this run."""
    left_open = {key for key in ("engine", "device") if getattr(request, key) == AUTO}
    return {key: value for key, value in identity.items() if key not in left_open}


def _train_group(
    group: Sequence[_Run], context: _Context, communicator: Communicator
) -> dict[Path, Mapping[str, Any]]:
    """The summaries of runs that train alike, by their folders, once they are trained."""
    name, place = f"{context.method} on {context.request.dataset}", context.place
    forget_peak_memory(place)
    with translate_device_loss(name, str(place)):
        try:
            with translate_out_of_memory(name, str(place)), translate_divergence(), translate_score_shape():
                written = _trained(group, context, communicator)
        finally:
            release_memory(place)
    return dict(zip((run.out for run in group), written, strict=True))


def _trained(group: Sequence[_Run], context: _Context, communicator: Communicator) -> list[Mapping[str, Any]]:
    """The summaries of runs that train alike, in their order."""
    request, rounds = context.request, context.settings["rounds"]
    clients = Clients.of_split(group[0].split, context.place, communicator)
    recorder = Recorder.of(request.record, clients, rounds, communicator) if request.record else None
    learner: Learner = make_learner(
        context.method, clients, context.trained, request.seed, context.engine, recorder, communicator
    )
    if communicator.is_root and request.kept_model != NEVER:
        _report_model_size(request, learner)
    if request.diverged == KEPT:
        learner = DivergenceTolerant(learner)
    everyones = [clients, *(evaluated_by(clients, run.split) for run in group[1:])]
    seconds, records = request.checkpoint_seconds, request.records
    first, *others = (
        (own, learner, rounds, run.out, run.identity, seconds, records, run.remarks, communicator)
        for own, run in zip(everyones, group, strict=True)
    )
    together = SharedTraining(*first, others=[Training(*each) for each in others])
    return [together.train(), *together.written]


def _report_model_size(request: TrainRequest, learner: Learner) -> None:
    """Say before training how large a large model is, and whether it will be written.

    Of several processes each has a part of it: the first one's is told.
    """
    size = sum(tensor.nbytes for tensor in learner.tensors().values())
    if size <= LARGE_MODEL:
        return
    if request.kept_model == ALWAYS:
        becomes = "It is written as asked."
    else:
        becomes = (
            f"Above {megabytes(LARGE_MODEL)} a model is written only on request: --model always, in Python "
            "with_model=True. Without it this run has its numbers and ranks, and run.scores, audits and "
            "figures of models have nothing to read."
        )
    print(f"{request.out}: the model has {megabytes(size)}. {becomes}", file=sys.stderr, flush=True)


def _trained_once(runs: Sequence[_Run], records: Sequence[str]) -> list[list[_Run]]:
    """The runs in groups that are trained once, of each the one first that is least far by its checkpoint."""
    groups: dict[tuple[str, ...], list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.samples, []).append(run)
    return [sorted(group, key=lambda run: _rounds_recorded(run, records)) for group in groups.values()]


def _rounds_recorded(run: _Run, records: Sequence[str]) -> int:
    return Checkpoints(run.out, run.identity, records, 0).rounds_noted


def _check_recorded(out: Path, summary: Mapping[str, Any], diverged: str) -> None:
    """Raise `DivergenceError` where a finished run diverged and that is to be an error."""
    if DIVERGED in summary and diverged == REFUSED:
        raise DivergenceError(
            f"{out}: contains this run, which diverged: {summary[DIVERGED]['why']} Accept it with "
            "--on-divergence record, or train it again with --force."
        )


def _check_also(request: TrainRequest, paper: str) -> None:
    """Raise `ConfigurationError` where two protocols of a request are one, or two folders."""
    protocols = {full_name(protocol, paper) for protocol in (request.protocol, *request.also)}
    folders = {folder.resolve() for folder in (request.out, *request.also.values())}
    if min(len(protocols), len(folders)) <= len(request.also):
        raise ConfigurationError("--also-protocol: give each protocol once, each with its own folder.")


@contextmanager
def _locked_folders(folders: Sequence[Path], communicator: Communicator) -> Iterator[None]:
    """The folders of runs, held by the process that writes to them, which says there how far it is."""
    if not communicator.is_root:
        yield
        return
    with ExitStack() as stack:
        locks = [stack.enter_context(locked(folder)) for folder in folders]

        def note(done: RoundsDone) -> None:
            for lock in locks:
                lock.note(canonical_json(asdict(done)))

        stack.enter_context(report_rounds(note))
        yield
