"""What `make` answers before it installs anything."""

import shutil
import subprocess

import pytest

from tests.conftest import ROOT

TOO_OLD = "#!/bin/sh\ncase $1 in -c) exit 1;; esac\ntouch installed\n"
"""A Python that says that its version is too old, and writes a file if it is used all the same."""


@pytest.fixture
def folder(tmp_path):
    shutil.copy(ROOT / "Makefile", tmp_path)
    old = tmp_path / "old-python"
    old.write_text(TOO_OLD, encoding="utf-8")
    old.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize(
    ("python", "message"),
    [
        (
            "python9",
            "There is no python9 here. fedrec needs Python 3.11.4 or later; name one with: make PYTHON=",
        ),
        ("./old-python", "fedrec needs Python 3.11.4 or later; name one with: make PYTHON="),
    ],
)
@pytest.mark.parametrize("target", ["demo", "test"])
def test_a_python_that_is_missing_or_too_old_is_one_message(folder, python, message, target):
    before = set(folder.iterdir())
    outcome = subprocess.run(
        ["make", "--no-print-directory", f"PYTHON={python}", target],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert outcome.returncode == 2
    assert outcome.stdout.startswith(message)
    assert outcome.stdout.count("\n") == 1
    assert set(folder.iterdir()) == before
