"""Fingerprints of code: a hash of the code that decides numbers.

A fingerprint covers modules and every fedrec module they import, by their source digests, and the files of C
in the folders of these modules. An edit of prose, a
message or a local name changes no fingerprint; an edit of arithmetic changes those of its users. Where an
edit changes a fingerprint and no number, the ledger of `fedrec.plan.equal_code` can prove it.
The workflow gives each job the fingerprint of its code as a parameter, and a result records it.
"""

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from fedrec.config.modules import CLASS_NAMES, broken_source, modules_of, without_class
from fedrec.errors import ConfigurationError
from fedrec.plan.source_digest import SourceCode, c_digest, source_code

NEUTRAL = ("fedrec.progress", "fedrec.errors", "fedrec.config", "fedrec.plan", "fedrec.files", "fedrec.cli")
"""Modules and packages that decide no number. fedrec compares the values that they pass on instead."""
NEUTRAL_TO_RUNS = (
    "fedrec.runs.train",
    "fedrec.runs.record",
    "fedrec.runs.device",
    "fedrec.runs.checkpoint",
    "fedrec.runs.stopping",
    "fedrec.native.cache",
    "fedrec.native.compiler_process",
    "fedrec.federation.model.citation",
    "fedrec.federation.observe.recorder",
    "fedrec.federation.observe.upload_log",
    "fedrec.federation.privacy.accountant",
)
"""Further modules that decide no number of a training run. They write files, cite papers, record, account for
privacy, cache compiled kernels, and start the compiler with the text and flags that others decide."""
_NOT_FOLLOWED = ("fedrec.runs.registry",)
"""Modules that import other modules by name. A fingerprint covers them, but not their imports."""
READ_BY_EVERY_RUN = ("rounds",)
"""Settings that every run reads, whatever its method."""
PREFERRED_ENGINE = "fused"
"""The engine that `auto` selects first."""
_ENGINES = "fedrec.federation.engines"
_PACKAGE = Path(__file__).resolve().parents[1]


def run_fingerprint(method: str, engine: str = PREFERRED_ENGINE) -> str:
    """The fingerprint of the code that decides the numbers of a run of `method` on `engine`."""
    return _fingerprint(run_modules(method, engine))


def code_fingerprint(*modules: str) -> str:
    """The fingerprint of `modules` and of every fedrec module they import, directly or not."""
    return _fingerprint(closure(modules, NEUTRAL))


def check_code(method: str, settings: Iterable[str]) -> None:
    """Raise `ConfigurationError` if the files of `method` are broken, or do not read one of `settings`.

    A change of a setting that no code reads would give a run another name and the same numbers.
    """
    modules = modules_of(method)
    for module, kind in zip(modules, CLASS_NAMES, strict=False):
        if kind not in _parsed(module).names:
            raise ConfigurationError(without_class(Path(*module.split(".")).with_suffix(".py"), kind))
    changed = [setting for setting in settings if setting not in READ_BY_EVERY_RUN]
    code = [_parsed(module).texts for module in run_modules(method, PREFERRED_ENGINE)] if changed else []
    for setting in changed:
        if not any(setting in texts for texts in code):
            files = " and ".join(f"{module.replace('.', '/')}.py" for module in modules)
            raise ConfigurationError(
                f"{method}: no code in {files}, or imported there, reads the setting '{setting}', so "
                "changing it has no effect. Leave it out."
            )


def closure(modules: Collection[str], neutral: tuple[str, ...]) -> list[str]:
    """`modules` and every fedrec module they import, directly or not, without neutral ones; sorted."""
    covered: set[str] = set()
    waiting = [*modules]
    while waiting:
        name = waiting.pop()
        if name not in covered and not _is_within(name, neutral):
            covered.add(name)
            waiting.extend(() if name in _NOT_FOLLOWED else _imports(name))
    return sorted(covered)


def run_modules(method: str, engine: str) -> list[str]:
    """The modules that decide the numbers of a run of `method` on `engine`; sorted."""
    method_modules = modules_of(method)
    modules = ["fedrec.runs.training", "fedrec.runs.registry", *method_modules]
    if any(name.startswith("fedrec.central") for name in _imports(method_modules[0])):
        modules.append("fedrec.central.learner")
    elif "fedrec.federation.model.method" in closure(method_modules, NEUTRAL):
        modules += ["fedrec.federation.federation", _engine_module(engine)]
    return closure(modules, (*NEUTRAL, *NEUTRAL_TO_RUNS))


def _engine_module(engine: str) -> str:
    """The module of an engine: itself, or the module `engine` of its package."""
    package = _file_of(f"{_ENGINES}.{engine}").parent
    return f"{_ENGINES}.{engine}.engine" if package.name == engine else f"{_ENGINES}.{engine}"


def _fingerprint(modules: Collection[str]) -> str:
    digest = hashlib.sha256()
    for name in modules:
        digest.update(f"{name}\n{_parsed(name).digest}\n".encode())
    for folder in sorted({_file_of(name).parent for name in modules}):
        for path in _c_files(folder):
            status = path.stat()
            content = _c_digest(path, status.st_mtime_ns, status.st_size)
            digest.update(f"{path.relative_to(_PACKAGE).as_posix()}\n{content}\n".encode())
    return digest.hexdigest()


def _imports(module: str) -> frozenset[str]:
    return _parsed(module).imports


def _parsed(module: str) -> SourceCode:
    path = _file_of(module)
    status = path.stat()
    return _parsed_file(path, status.st_mtime_ns, status.st_size)


@cache
def _parsed_file(path: Path, _changed: int, _size: int) -> SourceCode:
    try:
        code = source_code(path.read_text(encoding="utf-8"))
    except (SyntaxError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            broken_source(Path(_PACKAGE.name, path.parent.name, path.name), error)
        ) from None
    return replace(code, imports=frozenset(name for name in code.imports if _file_of(name).is_file()))


@cache
def _c_files(folder: Path) -> Sequence[Path]:
    """The files of C in a folder: none is added while a process lives."""
    return sorted(path for path in folder.iterdir() if path.suffix in (".c", ".cuh"))


@cache
def _c_digest(path: Path, _changed: int, _size: int) -> str:
    return c_digest(path.read_text(encoding="utf-8"))


# Cached: one plan calls it a hundred thousand times for a few hundred modules.
@cache
def _is_within(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == name or module.startswith(f"{name}.") for name in packages)


def _file_of(module: str) -> Path:
    return _file_below(_PACKAGE.parent, module)


@cache
def _file_below(folder: Path, module: str) -> Path:
    """The file of a module. The cache is safe: no module becomes a package while a process runs."""
    path = folder.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
