"""Methods and plug-ins by name, as files: `local-only` is `fedrec/methods/local_only.py`, and the plug-in of
`fedmf+plgc` is `fedrec/plugins/plgc.py`. Nothing is imported.
"""

from pathlib import Path

from fedrec.config.names import parse
from fedrec.errors import ConfigurationError, did_you_mean

_PACKAGE = Path(__file__).resolve().parents[1]
MODULE_FOLDERS = {"methods": _PACKAGE / "methods", "plugins": _PACKAGE / "plugins"}
"""The folders with the files of methods and plug-ins."""
CLASS_NAMES = ("METHOD", "PLUGIN")
"""The names that the file of a backbone, and that of a plug-in, must define."""


def method_names() -> list[str]:
    """Every method there is a file for."""
    return _names("methods")


def plugin_names() -> list[str]:
    """Every plug-in there is a file for."""
    return _names("plugins")


def modules_of(name: str) -> list[str]:
    """The module that holds the backbone of the composition `name`, and the plug-in's if there is one."""
    composition = parse(name)
    modules = [_module("methods", "method", composition.backbone)]
    if composition.plugin is not None:
        modules.append(_module("plugins", "plug-in", composition.plugin))
    return modules


def _names(package: str) -> list[str]:
    files = MODULE_FOLDERS[package].glob("[!_]*.py")
    return sorted(path.stem.replace("_", "-") for path in files)


def broken_source(path: Path, error: SyntaxError | UnicodeDecodeError) -> str:
    """Error message for a Python file with broken syntax or encoding."""
    if isinstance(error, SyntaxError):
        return f"{path}, line {error.lineno}: not valid Python: {error.msg}."
    return f"{path}: byte {error.start} is not UTF-8. Save the file as UTF-8."


def without_class(path: Path, kind: str) -> str:
    """Error message for the file of a method or plug-in without its class."""
    return f"{path}: the file has no {kind}. End it with: {kind} = <your class>."


def file_of(package: str, name: str) -> Path:
    """The file of the method or plug-in called `name`, as a path from the project's top folder."""
    return Path("fedrec") / package / f"{name.replace('-', '_')}.py"


def _module(package: str, kind: str, name: str) -> str:
    known = _names(package)
    if name not in known:
        raise ConfigurationError(
            f"{kind} '{name}' has no file: {file_of(package, name)} is missing.{did_you_mean(name, known)} "
            f"Files exist for: {', '.join(known) or 'none'}."
        )
    return f"fedrec.{package}.{name.replace('-', '_')}"
