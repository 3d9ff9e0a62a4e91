"""Train a run by name: find split, settings, device and engine, and train."""

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
    limit_torch_threads,
    memory_for_clients,
    raise_malloc_thresholds,
    release_memory,
    reset_peak_memory,
)
from fedrec.runs.divergence import DivergenceTolerant
from fedrec.runs.engine_check import CheckedEngine
from fedrec.runs.error_translation import (
    translate_device_loss,
    translate_divergence,
    translate_out_of_memory,
    translate_score_shape,
)
from fedrec.runs.folder import clear_folder, finished_result, other_files
from fedrec.runs.process_group import ProcessGroup
from fedrec.runs.record import megabytes
from fedrec.runs.registry import make_learner
from fedrec.runs.setting_files import FILE_CHECKSUMS, checksums, setting_paths, with_file_tables
from fedrec.runs.shared_training import SharedTraining, evaluated_by, samples_of
from fedrec.runs.splits import split_of
from fedrec.runs.training import Training

_OF_MODEL = {ALWAYS: WANTED, NEVER: NOT_KEPT}
"""The entry of run.json for a model that was requested, or was not to be written."""


@dataclass(frozen=True)
class _Run:
    """A run, with everything that identifies it."""

    out: Path
    split: Split
    samples: tuple[str, ...]
    """The key of its training samples."""
    identity: dict[str, Any]
    remarks: dict[str, Any]
    """Entries of run.json that decide no number and do not identify the run."""


@dataclass(frozen=True)
class _Context:
    """A request with its settings, device and engine, which all its runs share."""

    request: TrainRequest
    method: str
    """Spelt canonically."""
    paper: str
    settings: Mapping[str, Any]
    trained: Mapping[str, Any]
    """The settings with the tables of the files that they name."""
    sources: Mapping[str, str]
    also_of: Sequence[str]
    """The other papers with these settings."""
    device: torch.device
    engine: Engine
    remarks: Mapping[str, Any]
    """Remarks of every run. Memory decides the last bits of some runs."""

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
            "device": self.device.type,
            "split": split.content_hash(),
            "interactions": split.interactions,
            "code": run_fingerprint(self.method, self.engine.name),
        }
        if given := checksums(self.trained):
            identity[FILE_CHECKSUMS] = given
        # A run under a paper's own protocol is not another paper's run.
        also_of = [] if split.protocol.paper is not None else list(self.also_of)
        data = self.request.data
        remarks = {"also_settings_of": also_of, "data": os.path.relpath(data, out), **self.remarks}
        return _Run(out, split, samples_of(data / split.protocol.name), identity, remarks)


def train(request: TrainRequest, methods: Methods) -> Mapping[str, Any]:
    """Train a request, write its folder, and return the content of its `run.json`.

    If the folder has this run already, finished, nothing is trained. A different finished run is an error
    unless the request replaces it.
    """
    request.check()
    request = request.with_full_name(methods)
    process_group = ProcessGroup.of_environment()
    context = _context(request, methods, process_group)
    runs = context.runs()
    with (
        process_group.communicator(context.device) as communicator,
        _locked_folders([run.out for run in runs], communicator),
    ):
        summaries = _finished_results(runs, request, communicator)
        limit_torch_threads()
        raise_malloc_thresholds()
        for group in _group_by_samples([run for run in runs if run.out not in summaries], request.records):
            summaries |= _train_group(group, context, communicator)
    return summaries[request.out]


def _context(request: TrainRequest, methods: Methods, process_group: ProcessGroup) -> _Context:
    """Settings, device and engine of a request; `ConfigurationError` if one does not exist."""
    method = request.method
    settings, sources, paper = resolve(methods, method, request.paper, request.dataset, request.changes)
    check_code(method, [setting for setting, source in sources.items() if source == "user"])
    _check_also(request, paper)
    name = f"{method} on {request.dataset}"
    with translate_device_loss(name, "the GPU"), translate_out_of_memory(name, "the GPU"):
        # The query for free GPU memory itself allocates memory, and may fail.
        device = device_named(request.device, process_group.local_rank)
        memory = memory_for_clients(device, request.memory_gib)
    alike = papers_with_equal_settings(methods, method, paper, request.dataset, request.changes)
    return _Context(
        request=request,
        method=method,
        paper=paper,
        settings=settings,
        trained=with_file_tables(settings, setting_paths(methods, method, settings), request.data),
        sources=sources,
        also_of=[other for other in alike if other != paper],
        device=device,
        engine=_engine(request, method, settings, memory),
        remarks={
            "memory_for_clients": memory.as_dict(),
            **({"processes": process_group.size} if process_group.size > 1 else {}),
            **({MODEL: _OF_MODEL[request.model]} if request.model in _OF_MODEL else {}),
        },
    )


def _engine(request: TrainRequest, method: str, settings: Mapping[str, Any], memory: ClientMemory) -> Engine:
    """The requested engine. All engines except the loop are compared with the loop before they train."""
    engine = engine_named(request.engine, memory.together, memory.alone)
    if engine.name == "loop":
        return engine
    bounds = (memory.together, memory.alone)
    return CheckedEngine(
        engine, method, settings, bounds, partial(run_fingerprint, method), strict=request.strict
    )


def _finished_results(
    runs: Sequence[_Run], request: TrainRequest, communicator: Communicator
) -> dict[Path, Mapping[str, Any]]:
    """The summaries of the runs that are finished already, by folder."""
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
            summary = finished_result(
                run.out,
                _compared(run.identity, request),
                request.records,
                model=request.model_policy,
                replace=request.replace,
            )
    return communicator.broadcast(summary)


def _warn_of_other_files(folder: Path) -> None:
    """Warn if the folder of a run has other files: the user may have named the wrong folder."""
    if others := other_files(folder):
        shown = ", ".join(others[:3]) + (", ..." if len(others) > 3 else "")
        print(
            f"{folder}: contains other files ({shown}). fedrec keeps them, and writes this run beside them.",
            file=sys.stderr,
        )


def _compared(identity: Mapping[str, Any], request: TrainRequest) -> dict[str, Any]:
    """The identity without `engine` or `device` if the request leaves them open."""
    left_open = {key for key in ("engine", "device") if getattr(request, key) == AUTO}
    return {key: value for key, value in identity.items() if key not in left_open}


def _train_group(
    group: Sequence[_Run], context: _Context, communicator: Communicator
) -> dict[Path, Mapping[str, Any]]:
    """Train runs with equal samples; return their summaries by folder."""
    name, device = f"{context.method} on {context.request.dataset}", context.device
    reset_peak_memory(device)
    with translate_device_loss(name, str(device)):
        try:
            with translate_out_of_memory(name, str(device)), translate_divergence(), translate_score_shape():
                written = _trained(group, context, communicator)
        finally:
            release_memory(device)
    return dict(zip((run.out for run in group), written, strict=True))


def _trained(group: Sequence[_Run], context: _Context, communicator: Communicator) -> list[Mapping[str, Any]]:
    """Train runs with equal samples; return their summaries in order."""
    request, rounds = context.request, context.settings["rounds"]
    clients = Clients.of_split(group[0].split, context.device, communicator)
    recorder = Recorder.of(request.record, clients, rounds, communicator) if request.record else None
    learner: Learner = make_learner(
        context.method, clients, context.trained, request.seed, context.engine, recorder, communicator
    )
    if communicator.is_root and request.model_policy != NEVER:
        _report_model_size(request, learner)
    if request.diverged == KEPT:
        learner = DivergenceTolerant(learner)
    clients_of_runs = [clients, *(evaluated_by(clients, run.split) for run in group[1:])]
    seconds, records = request.checkpoint_seconds, request.records
    first, *others = (
        (clients_of_run, learner, rounds, run.out, run.identity, seconds, records, run.remarks, communicator)
        for clients_of_run, run in zip(clients_of_runs, group, strict=True)
    )
    together = SharedTraining(*first, others=[Training(*arguments) for arguments in others])
    return [together.train(), *together.written]


def _report_model_size(request: TrainRequest, learner: Learner) -> None:
    """Report the size of a large model before training, and whether it will be written.

    With several processes, this is the size of the first one's part.
    """
    size = sum(tensor.nbytes for tensor in learner.tensors().values())
    if size <= LARGE_MODEL:
        return
    if request.model_policy == ALWAYS:
        outcome = "It is written as asked."
    else:
        outcome = (
            f"Above {megabytes(LARGE_MODEL)} a model is written only on request: --model always, in Python "
            "with_model=True. Without it this run has its numbers and ranks, and run.scores, audits and "
            "figures of models have nothing to read."
        )
    print(f"{request.out}: the model has {megabytes(size)}. {outcome}", file=sys.stderr, flush=True)


def _group_by_samples(runs: Sequence[_Run], records: Sequence[str]) -> list[list[_Run]]:
    """Group runs with equal samples; in each group, the run with the fewest checkpointed rounds is first."""
    groups: dict[tuple[str, ...], list[_Run]] = {}
    for run in runs:
        groups.setdefault(run.samples, []).append(run)
    return [sorted(group, key=lambda run: _rounds_recorded(run, records)) for group in groups.values()]


def _rounds_recorded(run: _Run, records: Sequence[str]) -> int:
    return Checkpoints(run.out, run.identity, records, 0).rounds_saved


def _check_recorded(out: Path, summary: Mapping[str, Any], diverged: str) -> None:
    """Raise `DivergenceError` if a finished run diverged and the request does not accept that."""
    if DIVERGED in summary and diverged == REFUSED:
        raise DivergenceError(
            f"{out}: contains this run, which diverged: {summary[DIVERGED]['why']} Accept it with "
            "--on-divergence record, or train it again with --force."
        )


def _check_also(request: TrainRequest, paper: str) -> None:
    """Raise `ConfigurationError` if two protocols or two folders of a request are equal."""
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
