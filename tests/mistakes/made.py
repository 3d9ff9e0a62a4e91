"""How a mistake is made: in a copy of the configuration, on the command line, in a target, in a method's file."""

import contextlib
import io
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import yaml

from fedrec import methods
from fedrec.cli.main import main
from fedrec.config import modules
from fedrec.plan.fingerprint import _file_of
from tests.conftest import ROOT

_TRAIN = ("train", "--data", "data/demo", "--method", "fedmf", "--protocol", "clean", "--out", "run")
"""What `train` stands for in a command; words behind it win."""


@dataclass(frozen=True)
class Mistake:
    """One mistake, as `cases.yaml` describes it."""

    chapter: str
    what: str
    said: tuple[str, ...]
    edit: tuple[str, str, str] | None = None
    write: tuple[str, str] | None = None
    encoding: str = "utf-8"
    crlf: bool = False
    command: tuple[str, ...] = ("check",)
    mine: str | None = None
    at: str | None = None
    lines: int = 1
    right: bool = False

    def answer(self, folder: Path) -> tuple[int, str]:
        """The exit status and what is printed, with the configuration in `folder`, which is changed."""
        if self.edit is not None:
            path, old, new = self.edit
            text = (folder / path).read_text(encoding="utf-8")
            assert old in text, self.edit
            text = text.replace(old, new, 1)
            (folder / path).write_bytes(text.replace("\n", "\r\n" if self.crlf else "\n").encode())
        if self.write is not None:
            (folder / self.write[0]).write_bytes(self.write[1].encode(self.encoding))
        words = (*_TRAIN, *self.command[1:]) if self.command[0] == "train" else self.command
        printed = io.StringIO()
        told = contextlib.redirect_stderr(printed), contextlib.redirect_stdout(printed)
        with _own_method(folder, self.mine), contextlib.chdir(folder), told[0], told[1]:
            try:
                status = main(words)
            except SystemExit as stopped:  # argparse answers by itself
                status = int(stopped.code or 0)
        return status, printed.getvalue().strip()

    def line(self, folder: Path) -> int | None:
        """The line that the answer must name, in the edited file; None where it is not told beforehand."""
        if self.at is None or self.edit is None:
            return None
        text = (folder / self.edit[0]).read_text(encoding="utf-8")
        return text[: text.index(self.at)].count("\n") + 1


class Folder:
    """A copy of the configuration, brought back to what it was for every mistake."""

    def __init__(self, path: Path) -> None:
        self.path = path
        shutil.copytree(ROOT / "config", path / "config")
        files = [file for file in (path / "config").rglob("*") if file.is_file()]
        self._own = {file: file.read_bytes() for file in files}

    def restored(self) -> Path:
        for file, content in self._own.items():
            file.write_bytes(content)
        return self.path


def mistakes() -> list[Mistake]:
    """All of them, in the order of their chapters."""
    chapters = yaml.safe_load(Path(__file__).with_name("cases.yaml").read_text(encoding="utf-8"))
    return [
        Mistake(
            chapter,
            **{key: tuple(value) if isinstance(value, list) else value for key, value in case.items()},
        )
        for chapter, cases in chapters.items()
        for case in cases
    ]


@contextlib.contextmanager
def _own_method(folder: Path, text: str | None) -> Iterator[None]:
    """A method `mine` beside those of the project, for as long as it takes."""
    if text is None:
        yield
        return
    package = folder / "methods"
    package.mkdir()
    for file in (ROOT / "fedrec/methods").glob("*.py"):
        (package / file.name).symlink_to(file)
    (package / "mine.py").write_text(text, encoding="utf-8")
    with (
        mock.patch.object(methods, "__path__", [*methods.__path__, str(package)]),
        mock.patch.dict(modules.MODULE_FOLDERS, {"methods": package}),
        mock.patch("fedrec.plan.fingerprint._file_of", _found_in(package)),
    ):
        try:
            yield
        finally:
            sys.modules.pop("fedrec.methods.mine", None)
            shutil.rmtree(package)


def _found_in(package: Path) -> Callable[[str], Path]:
    def file_of(module: str) -> Path:
        return package / "mine.py" if module == "fedrec.methods.mine" else _file_of(module)

    return file_of
