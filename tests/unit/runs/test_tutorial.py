"""docs/tutorial.md, executed line by line: in Python, and by its commands."""

import re
import shlex
import shutil

import polars as pl
import pytest

from fedrec.cli.main import main
from fedrec.native.on_cpu import FLAGS
from tests.conftest import ROOT, swift

PAGE = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")


def blocks(language):
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.M | re.S)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A folder with a configuration of its own. Kernels are fast ones, since methods train for many rounds."""
    monkeypatch.setenv(FLAGS, swift())
    shutil.copytree(ROOT / "config", tmp_path / "config")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_python_and_the_commands_lead_to_the_same_table(folder, capsys):
    names = {}
    with pytest.warns(UserWarning, match="3 seeds of a method"):
        exec("\n".join(blocks("python")), names)
    assert (folder / "curve.png").read_bytes().startswith(b"\x89PNG")
    assert names["run"].recommend("c-7", k=5).height == 5

    # The commands prepare and split anew, and take up the runs that Python left behind.
    (folder / "results/data").rename(folder / "of-python")
    for line in "".join(blocks("bash")).splitlines():
        words = shlex.split(line.replace("$BEST", names["found"].best))
        assert main(words[1:]) == 0, capsys.readouterr().err
    assert f"Best: {names['found'].best}," in capsys.readouterr().out
    table = pl.read_csv(folder / "table.csv", schema=names["table"].schema)
    assert table.equals(names["table"])
