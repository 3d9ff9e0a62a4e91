"""Records the evidence of one source tree: the numbers it trains, the kernels it generates, the lines it executes.

    PYTHONPATH=TREE python recorder.py PLAN.json TREE DATA EVIDENCE.json [PROCESSES]

DATA is the folder of the synthetic dataset with its splits. PROCESSES share the work (default: 1).

This file is run against older trees too. So it imports nothing from `tests`, and trains and prints kernels through
the command line alone.
"""

import contextlib
import hashlib
import io
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

_CALLS = 40
"""After so many calls in one run that reach no new line, a function is not traced until the next run."""
_LANES = 256
"""Of the texts of kernels for a GPU."""
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_KERNEL_FOLDER = "FEDREC_KERNELS"
_CLAIMS = "FEDREC_RECORDER_CLAIMS"
"""The environment variable that names the folder where processes claim tasks."""
METHODS_FILE = "config/methods.yaml"


class LineTracer:
    """Collects the lines of the package that are executed, from the first import on."""

    def __init__(self, package: Path) -> None:
        self.lines: dict[str, set[int]] = defaultdict(set)
        self._package = f"{package}{os.sep}"
        self._fruitless: Counter[CodeType] = Counter()

    def start(self) -> None:
        """Trace this thread and those that it starts."""
        threading.settrace(self._on_call)
        sys.settrace(self._on_call)

    def new_run(self) -> None:
        """Trace every function again."""
        self._fruitless.clear()

    def _on_call(self, frame: FrameType, event: str, _argument: object) -> Callable[..., Any] | None:
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(self._package):
            return None
        if self._fruitless[code] > _CALLS:
            return None
        self._fruitless[code] += 1
        seen = self.lines[code.co_filename.removeprefix(self._package)]

        def on_line(frame: FrameType, event: str, _argument: object) -> Callable[..., Any]:
            if event == "line" and frame.f_lineno not in seen:
                seen.add(frame.f_lineno)
                self._fruitless[code] = 0
            return on_line

        return on_line


def fingerprints(plan: Mapping[str, Any]) -> dict[str, str]:
    """The fingerprint of every method and plug-in for every engine, by `method/engine`."""
    from fedrec.plan.fingerprint import run_fingerprint

    engines = dict.fromkeys(str(kind["engine"]) for kind in plan["trainings"])
    absent = absent_methods(plan)
    return {
        f"{name}/{engine}": run_fingerprint(name, engine)
        for name in plan["methods"]
        for engine in engines
        if name not in absent
    }


def absent_methods(plan: Mapping[str, Any]) -> list[str]:
    """The methods of the plan that the tree has no file for: a newer commit added them."""
    from fedrec.config.modules import method_names, plugin_names

    methods, plugins = method_names(), ["", *plugin_names()]

    def is_here(name: str) -> bool:
        backbone, _, plugin = name.partition("+")
        return backbone in methods and plugin in plugins

    return [name for name in plan["methods"] if not is_here(name)]


def modules_of(plan: Mapping[str, Any]) -> list[str]:
    """Every module that a fingerprint covers."""
    from fedrec.plan import fingerprint

    # Commits before the ledger have it under another name.
    of_run = getattr(fingerprint, "run_modules", None) or fingerprint._run_modules
    engines = {str(kind["engine"]) for kind in plan["trainings"]}
    methods = [name for name in plan["methods"] if name not in absent_methods(plan)]
    return sorted({module for name in methods for engine in engines for module in of_run(name, engine)})


def runs(
    plan: Mapping[str, Any], tree: Path, data: Path, out: Path, tracer: LineTracer
) -> Iterator[tuple[str, dict[str, str]]]:
    """Train every run of the plan whose method the tree has, and give the hashes of its numbers."""
    # Both trees know the variable, whatever they call the option.
    os.environ["FEDREC_DIVERGED"] = "kept"
    absent = absent_methods(plan)
    for kind in plan["trainings"]:
        for name in (name for name in kind["names"] if name.partition("[")[0] not in absent):
            for protocol in kind["protocols"]:
                key = f"{name} {protocol} {kind['engine']}"
                if not claimed(key):
                    continue
                tracer.new_run()
                folder = out / f"{kind['engine']}-{protocol}-{hashlib.sha256(name.encode()).hexdigest()[:12]}"
                command = [
                    "train", "--data", str(data), "--method", name, "--protocol", protocol,
                    "--out", str(folder), "--set", f"rounds={kind['rounds']}", "--engine", kind["engine"],
                    "--device", plan["device"], "--memory", "4",
                    "--methods", str(tree / METHODS_FILE),
                ]  # fmt: skip
                status, text = _command(command)
                yield key, _hashes(folder, data) if status == 0 else {"failed": text[-500:]}


def kernels(plan: Mapping[str, Any], tree: Path, tracer: LineTracer) -> Iterator[tuple[str, str]]:
    """The hash of every kernel text of the plan's methods, variants and stored settings, without comments."""
    absent = absent_methods(plan)
    for case in plan["kernels"]:
        if case["method"].partition("[")[0] in absent:
            continue
        if not claimed(f"kernels {case['method']} {' '.join(case['set'])}"):
            continue
        tracer.new_run()
        words = [word for change in case["set"] for word in ("--set", change)]
        for device in ("cpu", "cuda"):
            for round_ in case["rounds"]:
                command = [
                    "kernel", case["method"], *words, "--device", device, "--round", str(round_),
                    "--methods", str(tree / METHODS_FILE),
                ]  # fmt: skip
                status, text = _command(command)
                digest = _text_hash(text) if status == 0 else f"refused with status {status}"
                yield f"{device}: {case['method']} {' '.join(case['set'])} round {round_}", digest


def compiled(folder: Path, created: Iterable[Any]) -> list[str]:
    """The hashes of the texts of all kernels that were compiled, and of all that a GPU would have compiled."""
    texts = [path.read_text(encoding="utf-8") for path in folder.glob("*.txt")]
    return sorted({_text_hash(text) for text in (*texts, *(source.for_gpu(_LANES) for source in created))})


def created_kernels() -> list[Any]:
    """A list that every source of a kernel will be in, once it is created."""
    from fedrec.native.source import KernelSource

    created: list[Any] = []
    initialise = KernelSource.__init__

    def initialise_and_note(self: Any, *values: Any, **named: Any) -> None:
        initialise(self, *values, **named)
        created.append(self)

    KernelSource.__init__ = initialise_and_note
    return created


def tree_hash(tree: Path) -> str:
    """The hash of the settings of methods, and of every source file of the package."""
    digest = hashlib.sha256()
    sources = (
        path for pattern in ("*.py", "*.c", "*.cuh") for path in tree.joinpath("fedrec").rglob(pattern)
    )
    for path in (tree / METHODS_FILE, *sorted(sources)):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(f"{path.relative_to(tree).as_posix()} {content}\n".encode())
    return digest.hexdigest()


def own_hash() -> str:
    """The hash of this file: another recorder writes other evidence."""
    return hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


def _command(words: Sequence[str]) -> tuple[int, str]:
    """Run a command of fedrec in this process; give its status and what it printed."""
    from fedrec.cli.commands import perform

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
        try:
            status = perform([str(word) for word in words])
        except Exception as error:
            # A case that fails is a difference, and must not hide the others.
            return 70, f"{type(error).__name__}: {error}"
    return status, printed.getvalue()


def _hashes(folder: Path, data: Path) -> dict[str, str]:
    """The hashes of a run's curve, its ranks, and the scores of all users and items by its model."""
    import numpy as np
    import pyarrow.parquet as pq

    import fedrec

    found = {}
    for table in ("curve", "ranks"):
        columns = pq.read_table(folder / f"{table}.parquet")
        content = [repr((name, columns[name].to_pylist())) for name in sorted(columns.column_names)]
        found[table] = hashlib.sha256("\n".join(content).encode()).hexdigest()
    users = np.unique(pq.read_table(folder / "ranks.parquet", columns=["user"])["user"].to_numpy())
    run = fedrec.open_run(folder, data)
    scores = np.ascontiguousarray(run.scores(users.tolist(), np.arange(run.clients.items)))
    found["scores"] = hashlib.sha256(
        f"{scores.dtype} {scores.shape} ".encode() + scores.tobytes()
    ).hexdigest()
    return found


def _text_hash(text: str) -> str:
    return hashlib.sha256(" ".join(_COMMENT.sub(" ", text).split()).encode()).hexdigest()


def machine(device: str) -> dict[str, str]:
    """The machine and the versions that the evidence was recorded by."""
    import numpy as np
    import torch

    cpu = Path("/proc/cpuinfo")
    models = re.findall(r"(?:model name|CPU part)\s*: (.*)", cpu.read_text() if cpu.is_file() else "")
    name = f"{platform.machine()} {models[0] if models else 'CPU'}"
    versions = {"python": platform.python_version(), "torch": torch.__version__, "numpy": np.__version__}
    return {"device": torch.cuda.get_device_name() if device == "cuda" else name, **versions}


def record(plan: Mapping[str, Any], tree: Path, data: Path, out: Path) -> None:
    """Record the evidence that a plan asks for, in this process."""
    tracer = LineTracer(tree / "fedrec")
    tracer.start()
    import torch

    import fedrec

    if not Path(fedrec.__file__).resolve().is_relative_to(tree):
        raise SystemExit(f"fedrec was imported from {fedrec.__file__}, not from {tree}: set PYTHONPATH.")
    created = created_kernels()
    torch.set_num_threads(1)
    started = time.monotonic()
    evidence: dict[str, Any] = {
        "tree": tree_hash(tree),
        "plan": plan["checksum"],
        "machine": machine(plan["device"]),
        "fingerprints": fingerprints(plan),
        "modules": modules_of(plan),
        "absent": absent_methods(plan),
        "runs": {},
    }
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_KERNEL_FOLDER] = f"{folder}/kernels"
        for number, (key, hashes) in enumerate(runs(plan, tree, data, Path(folder), tracer), start=1):
            evidence["runs"][key] = hashes
            seconds = time.monotonic() - started
            print(f"{tree.name}: run {number}, {key}, {seconds:.0f} s", file=sys.stderr, flush=True)
        evidence["kernels"] = dict(kernels(plan, tree, tracer))
        evidence["compiled"] = compiled(Path(folder, "kernels"), created)
    sys.settrace(None)
    evidence["lines"] = {file: sorted(lines) for file, lines in sorted(tracer.lines.items())}
    evidence["seconds"] = round(time.monotonic() - started)
    out.write_text(json.dumps(evidence))


def claimed(task: str) -> bool:
    """Whether this process is the first of those that share a recording to take up a task."""
    folder = os.environ.get(_CLAIMS)
    if folder is None:
        return True
    try:
        Path(folder, hashlib.sha256(task.encode()).hexdigest()).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The evidence of all processes as one."""
    lines: dict[str, set[int]] = defaultdict(set)
    for part in parts:
        for file, executed in part["lines"].items():
            lines[file].update(executed)
    return {
        **parts[0],
        "runs": {key: run for part in parts for key, run in part["runs"].items()},
        "kernels": {key: text for part in parts for key, text in part["kernels"].items()},
        "compiled": sorted({text for part in parts for text in part["compiled"]}),
        "lines": {file: sorted(executed) for file, executed in sorted(lines.items())},
        "seconds": max(part["seconds"] for part in parts),
    }


def main() -> None:
    """Record in one process, or share the work among several and join what they recorded."""
    plan = json.loads(Path(sys.argv[1]).read_text())
    if plan["recorder"] != own_hash():
        raise SystemExit(f"{sys.argv[1]}: is the plan of another recorder. Write it again (--plan).")
    tree, data, out = (Path(word).resolve() for word in sys.argv[2:5])
    processes = int(sys.argv[5]) if len(sys.argv) > 5 else 1
    if processes == 1:
        record(plan, tree, data, out)
        return
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, _CLAIMS: folder}
        parts = [Path(folder, f"evidence{number}.json") for number in range(processes)]
        command = [sys.executable, __file__, *sys.argv[1:4]]
        started = [subprocess.Popen([*command, str(part)], env=environment) for part in parts]
        statuses = [process.wait() for process in started]
        if any(statuses):
            raise SystemExit("a recording process failed: see its message above.")
        out.write_text(json.dumps(joined([json.loads(part.read_text()) for part in parts])))


if __name__ == "__main__":
    main()
