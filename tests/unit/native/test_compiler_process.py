"""Compilers that hang, lie or die: work is done without them, and nothing of theirs is kept."""

import os
import shutil
import signal
import tempfile
import threading
import time
from pathlib import Path

import pytest
import torch

from fedrec.errors import NoCompilerError
from fedrec.native import compiler_process
from fedrec.native.compiler_process import compiler_output
from fedrec.native.kernel import Kernel, kernel_or_none
from fedrec.native.source import KernelSource

CPU = torch.device("cpu")
FILL = KernelSource("fill", (("real*", "x"),), "x[item] = 1;")
VERSION = '[ "$1" = --version ] && echo "cc (made) 1.0" && exit\n'
OUTPUT = 'for word; do [ "$before" = -o ] && out="$word"; before="$word"; done\n'
"""In a script: `$out` is where the compiler shall write."""


@pytest.fixture
def compiler(tmp_path, monkeypatch, own_cache):
    """Makes a script the compiler; `REAL` in it is the real one."""
    programs, temporary = tmp_path / "programs", tmp_path / "temporary"
    programs.mkdir()
    temporary.mkdir()
    real = shutil.which("cc")
    assert real is not None
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    monkeypatch.setattr(compiler_process, "SECONDS_TO_COMPILE", 20.0)

    def make(text):
        (programs / "cc").write_text(text.replace("REAL", real))
        (programs / "cc").chmod(0o755)

    yield make
    assert not list(temporary.iterdir())
    assert not list(own_cache.glob("fill*"))


FAILING = {
    "writes nothing": ("exit 0", "wrote no program"),
    "writes an empty file": (': > "$out"', "wrote no program"),
    "writes garbage": (
        'yes garbage | head -c 5000 > "$out"',
        "cannot be written or loaded.*invalid ELF header",
    ),
    "writes a half": (
        'REAL "$@"; size=$(wc -c < "$out"); truncate -s $((size / 2)) "$out"',
        "wrote an incomplete program",
    ),
    "writes a header alone": ('REAL "$@"; truncate -s 40 "$out"', "wrote an incomplete program"),
    "writes another library": (
        'echo "int other;" | REAL -shared -x c -o "$out" -',
        "the library does not contain this kernel: .*undefined symbol: fill",
    ),
    "makes a folder": ('rm "$out"; mkdir "$out"', "wrote no program"),
    "fails": ("echo it is broken >&2; exit 3", "cc fails: it is broken"),
    "fails without a word": ("exit 3", "ends with status 3, without a message"),
    "says no text": (r"printf '\377\376' >&2; exit 1", "cc fails: "),
    "is killed": ("kill -9 $$", "was killed by signal 9: memory ran out, or somebody killed it"),
    "is killed and its child writes on": (
        '(sleep 0.2; echo late > "$out"; sleep 60) & kill -9 $$',
        "was killed by signal 9",
    ),
}


def test_one_reason_is_said_once_of_all_kernels(compiler, caplog):
    compiler(f'#!/bin/sh\n{VERSION}{OUTPUT}echo garbage > "$out"\n')
    assert kernel_or_none(FILL, CPU) is None
    assert kernel_or_none(KernelSource("fill_other", (), ""), CPU) is None
    assert len(caplog.records) == 1
    assert tempfile.gettempdir() not in caplog.text


@pytest.mark.parametrize("kind", FAILING)
def test_a_compiler_that_fails_is_named_with_the_reason_and_leaves_nothing(kind, compiler):
    does, reason = FAILING[kind]
    compiler(f"#!/bin/sh\n{VERSION}{OUTPUT}{does}\n")
    start = time.monotonic()
    with pytest.raises(NoCompilerError, match=reason):
        Kernel(FILL, CPU)
    assert time.monotonic() - start < 15
    assert kernel_or_none(FILL, CPU) is None


def lives(group):
    """Whether a process of a group is there that is no zombie."""
    for status in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, found = status.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            # It has ended since.
            continue
        if int(found) == group and state != "Z":
            return True
    return False


def until_ended(group):
    deadline = time.monotonic() + 10
    while lives(group):
        assert time.monotonic() < deadline, "it lives on"
        time.sleep(0.02)


@pytest.mark.parametrize("hangs", ["sleep 60", "(sleep 60) & wait", "trap '' TERM INT; sleep 60"])
@pytest.mark.parametrize("when", ["", VERSION])
def test_a_compiler_that_hangs_is_stopped_and_not_called_again(hangs, when, compiler, monkeypatch, tmp_path):
    monkeypatch.setattr(compiler_process, "SECONDS_TO_COMPILE", 0.3)
    calls = tmp_path / "calls"
    compiler(f"#!/bin/sh\n{when}echo $$ >> {calls}\n{hangs}\n")
    start = time.monotonic()
    for source in (FILL, KernelSource("fill_other", (), "")):
        with pytest.raises(
            NoCompilerError, match=r"cc did not end within 0\.3 seconds, and fedrec stopped it"
        ):
            Kernel(source, CPU)
    assert time.monotonic() - start < 15
    (process,) = calls.read_text().split()
    until_ended(int(process))


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\necho no licence >&2; exit 1\n", "cc fails: no licence"),
        ("#!/nowhere/sh\n", "cc cannot be started"),
        ("\x00\x01", "cc cannot be started"),
    ],
)
def test_a_compiler_that_does_not_tell_its_version_is_not_used(script, reason, compiler):
    compiler(script)
    with pytest.raises(NoCompilerError, match=reason):
        Kernel(FILL, CPU)


def test_a_compiler_reads_the_text_and_its_output_is_returned():
    assert compiler_output(["sh", "-c", 'cat; echo " $MADE"'], "äöü", MADE="yes") == "äöü yes\n"


def test_who_is_interrupted_ends_the_compiler(tmp_path, monkeypatch):
    mark = tmp_path / "mark"
    monkeypatch.setattr(compiler_process, "SECONDS_TO_COMPILE", 5.0)
    main = threading.main_thread().ident
    threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        compiler_output(["sh", "-c", f"echo $$ > {mark}; sleep 60"])
    until_ended(int(mark.read_text()))
