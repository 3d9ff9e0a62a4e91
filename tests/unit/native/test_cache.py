"""Compiled kernels are loaded from the cache only where they are whole and nobody else could have written them."""

import ctypes
import errno
import hashlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from fedrec.errors import StorageError
from fedrec.files.atomic import try_lock
from fedrec.native import cache, on_cpu
from fedrec.native.kernel import Kernel
from fedrec.native.source import KernelSource
from tests.conftest import ROOT
from tests.unit.native.conftest import forget

FILL = KernelSource("fill", (("real*", "x"),), "x[item] = item + 1;")
FOREIGN = """
#include <stdio.h>
__attribute__((constructor)) static void at_loading(void) { fclose(fopen("MARK", "w")); }
void fill(void) {}
"""
ANOTHER_USER = 54321


def filled():
    """Compile or load the kernel as a new process would, and see that it does its work."""
    on_cpu.cpu_kernel.cache_clear()
    x = torch.zeros(4)
    Kernel(FILL, torch.device("cpu"))(4, x=x)
    assert x.tolist() == [1, 2, 3, 4]


def library_in(folder):
    (library,) = folder.glob("fill-*.so")
    return library


def checksum_of(library):
    return library.with_name(f"{library.name}.sha256")


def with_checksum(library):
    """Write the checksum that fits a library, as an attacker would who can write to the folder."""
    digest = hashlib.sha256(library.read_bytes()).hexdigest()
    checksum_of(library).write_text(f"{digest}  {library.name}\n")


@pytest.fixture
def compiled(monkeypatch):
    """The files that were compiled, in order."""
    paths, compile_ = [], on_cpu._compile
    monkeypatch.setattr(
        on_cpu, "_compile", lambda command, text, path: (paths.append(path), compile_(command, text, path))
    )
    return paths


@pytest.fixture
def own_temporary(tmp_path, monkeypatch):
    """A folder of temporary files of its own."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def foreign(tmp_path):
    """A library whose constructor writes a file, and that file."""
    mark, library = tmp_path / "mark", tmp_path / "foreign.so"
    subprocess.run(
        [*on_cpu.compiler(), "-shared", "-fPIC", "-x", "c", "-o", str(library), "-"],
        input=FOREIGN.replace("MARK", str(mark)), text=True, check=True,
    )  # fmt: skip
    return library, mark


def half(library, _foreign):
    library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])


def flipped(library, _foreign):
    content = bytearray(library.read_bytes())
    content[len(content) // 3] ^= 1
    library.write_bytes(content)


def exchanged(library, foreign):
    """As another kernel under this name, with its own checksum."""
    library.write_bytes(foreign.read_bytes())
    checksum_of(library).write_text(f"{hashlib.sha256(foreign.read_bytes()).hexdigest()}  other.so\n")


def link(library, foreign):
    library.unlink()
    library.symlink_to(foreign)
    with_checksum(library)


def pipe(library, _foreign):
    library.unlink()
    os.mkfifo(library)


DAMAGE = {
    "empty": lambda library, _: library.write_bytes(b""),
    "half": half,
    "one bit": flipped,
    "noise": lambda library, _: library.write_bytes(bytes(range(256)) * 64),
    "foreign": lambda library, foreign: library.write_bytes(foreign.read_bytes()),
    "exchanged": exchanged,
    "a link to a foreign one": link,
    "a pipe": pipe,
    "without checksum": lambda library, _: checksum_of(library).unlink(),
    "an empty checksum": lambda library, _: checksum_of(library).write_bytes(b""),
    "writable by the group": lambda library, _: library.chmod(0o664),
    "a checksum that all may write": lambda library, _: checksum_of(library).chmod(0o646),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_a_damaged_kernel_is_never_loaded_and_compiled_again_once(kind, own_cache, compiled, foreign):
    library, mark = foreign
    filled()
    DAMAGE[kind](library_in(own_cache), library)
    filled()
    assert len(compiled) == 2
    filled()
    assert len(compiled) == 2, "the cache is whole again"
    assert not mark.exists()
    ctypes.CDLL(str(library))
    assert mark.exists(), "a constructor that runs would be seen"


@pytest.mark.usefixtures("own_temporary")
def test_a_folder_in_the_place_of_a_kernel_is_named_and_the_kernel_is_loaded_all_the_same(
    own_cache, compiled, caplog
):
    filled()
    library = library_in(own_cache)
    library.unlink()
    library.mkdir()
    filled()
    filled()
    assert len(compiled) == 3
    assert f"{library}: cannot be written: a folder has that name" in caplog.text


@pytest.mark.parametrize("kind", ["a link to a foreign one", "a pipe", "a folder"])
def test_what_is_no_plain_file_is_called_so(kind, own_cache, foreign, caplog):
    library, _ = foreign
    filled()
    kept = library_in(own_cache)
    if kind == "a folder":
        kept.unlink()
        kept.mkdir()
    else:
        DAMAGE[kind](kept, library)
    filled()
    assert f"{kept} is no plain file that only its owner may write" in caplog.text


def test_a_kernel_lies_beside_its_source_and_checksum(own_cache):
    filled()
    library = library_in(own_cache)
    assert (own_cache / f"{library.name}.txt").read_text() == FILL.for_cpu()
    assert sorted(path.suffix for path in own_cache.iterdir()) == [".sha256", ".so", ".txt"]
    checked = subprocess.run(
        ["sha256sum", "--check", checksum_of(library).name], cwd=own_cache, capture_output=True, check=False
    )
    assert checked.returncode == 0


def test_nothing_is_left_in_the_temporary_folder(own_cache, own_temporary):
    filled()
    filled()
    assert library_in(own_cache)
    assert not list(own_temporary.iterdir())


def test_what_fedrec_writes_can_be_written_by_nobody_else_whatever_the_umask_is(own_cache):
    before = os.umask(0)
    try:
        filled()
    finally:
        os.umask(before)
    assert own_cache.stat().st_mode & 0o777 == 0o700
    assert all(not path.stat().st_mode & 0o022 for path in own_cache.iterdir())


@pytest.mark.parametrize("mode", [0o775, 0o757, 0o777, 0o1777])
def test_a_folder_that_others_may_write_is_refused_with_what_to_do(
    mode, own_cache, compiled, caplog, foreign
):
    library, mark = foreign
    filled()
    kept = library_in(own_cache)
    kept.write_bytes(library.read_bytes())
    with_checksum(kept)
    own_cache.chmod(mode)
    forget()
    caplog.set_level(logging.WARNING)
    filled()
    filled()
    assert len(compiled) == 3
    assert not mark.exists()
    assert [record.getMessage() for record in caplog.records] == [
        "compiled kernels are not stored, so every process compiles its own: others may write to the folder "
        f"{own_cache} (mode {mode:o}), and fedrec would run their programs. Run `chmod 700 {own_cache}`, "
        "or name another folder by FEDREC_KERNELS."
    ]


@pytest.mark.parametrize(("mode", "trusted"), [(0o777, False), (0o1777, True), (0o775, True)])
def test_a_folder_counts_as_replaceable_where_all_may_write_above_it(mode, trusted, own_cache, caplog):
    own_cache.mkdir(mode=0o700)
    own_cache.parent.chmod(mode)
    filled()
    own_cache.parent.chmod(0o700)
    assert len(list(own_cache.glob("*.so"))) == trusted
    assert (f"everybody may write to {own_cache.parent}" in caplog.text) != trusted


def given_away(path, monkeypatch):
    """Let a file belong to another user; who may not do that becomes another user."""
    if os.geteuid() == 0:
        os.chown(path, ANOTHER_USER, -1)
    else:
        monkeypatch.setattr(os, "geteuid", lambda: ANOTHER_USER)


def test_a_folder_of_another_user_is_refused(own_cache, monkeypatch, compiled, caplog):
    filled()
    given_away(own_cache, monkeypatch)
    forget()
    filled()
    assert len(compiled) == 2
    assert f"the folder {own_cache} belongs to the user " in caplog.text
    assert "Name a folder of your own by FEDREC_KERNELS." in caplog.text


def test_a_kernel_of_another_user_is_refused(own_cache, monkeypatch, compiled, caplog):
    filled()
    with monkeypatch.context() as patch:
        patch.setattr(cache, "folder", lambda: own_cache)
        given_away(library_in(own_cache), patch)
        filled()
    assert len(compiled) == 2
    assert "is no plain file that only its owner may write" in caplog.text


def test_the_cache_is_the_users_and_closed_to_others(tmp_path, monkeypatch, own_cache):
    monkeypatch.delenv(cache.CACHE)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    folder = tmp_path / "fedrec" / "kernels"
    for before in (None, 0o775):
        if before is not None:
            folder.chmod(before)
        forget()
        assert cache.folder() == folder
        assert [path.stat().st_mode & 0o777 for path in (folder, folder.parent)] == [0o700] * 2
    assert not own_cache.exists()


@pytest.mark.usefixtures("own_cache", "own_temporary")
@pytest.mark.parametrize("place", ["/proc/self/task", "/proc/self/status/kernels"])
def test_where_nothing_can_be_written_kernels_are_compiled_all_the_same(place, monkeypatch, compiled, caplog):
    monkeypatch.setenv(cache.CACHE, place)
    filled()
    filled()
    assert len(compiled) == 2
    assert len(caplog.records) == 1
    assert "compiled kernels are not stored" in caplog.text
    assert "cannot be written" in caplog.text


def test_a_home_that_the_shell_did_not_put_in_is_meant_all_the_same(tmp_path, own_cache, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv(cache.CACHE, "~/here")
    assert cache.folder() == tmp_path / "here"
    assert not own_cache.exists()


@pytest.mark.usefixtures("own_cache")
def test_without_a_home_kernels_are_compiled_all_the_same(monkeypatch, caplog):
    def none():
        raise RuntimeError("there is no home")

    monkeypatch.delenv(cache.CACHE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    filled()
    assert "there is no home" in caplog.text


def test_a_full_disk_of_the_cache_is_named_and_kernels_are_compiled(own_cache, monkeypatch, compiled, caplog):
    @contextmanager
    def full(path):
        raise StorageError(f"{path}: no space left on the disk while writing")
        yield

    with monkeypatch.context() as patch:
        patch.setattr(cache, "atomic", full)
        filled()
        assert not list(own_cache.iterdir())
        Kernel(KernelSource("other", (), ""), torch.device("cpu"))
        assert caplog.text.count("no space left on the disk") == 1, "this is said once, not of every kernel"
    filled()
    filled()
    assert len(compiled) == 3


def test_a_full_disk_of_temporary_files_is_no_reason_to_compile_again(own_cache, monkeypatch, compiled):
    def full(**_):
        raise OSError(errno.ENOSPC, "no space left on device")

    filled()
    monkeypatch.setattr(tempfile, "NamedTemporaryFile", full)
    filled()
    assert compiled
    assert len(compiled) == 1
    assert library_in(own_cache)


def test_where_no_program_runs_from_temporary_files_they_lie_in_the_cache(
    own_cache, own_temporary, monkeypatch, compiled
):
    if not hasattr(os, "ST_NOEXEC"):
        pytest.skip("this system does not tell where programs may run")
    monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(f_flag=os.ST_NOEXEC))
    filled()
    (path,) = compiled
    assert path.parents[1] == own_cache
    assert not list(own_temporary.iterdir())
    assert len(list(own_cache.iterdir())) == 3


def test_what_dead_processes_left_is_removed_and_what_living_ones_have_is_not(own_cache, own_temporary):
    long_ago = time.time() - 3600
    names = ("dead", "alive", "young")
    folders = {name: own_temporary / f"fedrec-kernels-{name}" for name in names}
    for folder in folders.values():
        folder.mkdir()
        (folder / "half.so").write_bytes(b"half")
    file = own_temporary / "fedrec-kernels-file"
    file.write_bytes(b"half")
    for path in (folders["dead"], folders["alive"], file):
        os.utime(path, (long_ago, long_ago))
    own_cache.mkdir(mode=0o700)
    parts = [own_cache / f".other.so.{name}.part" for name in names]
    for part in parts:
        part.write_bytes(b"half")
    held = [os.open(folders["alive"], os.O_RDONLY), os.open(parts[1], os.O_RDWR)]
    assert all(try_lock(descriptor) for descriptor in held)
    filled()
    for descriptor in held:
        os.close(descriptor)
    assert sorted(own_temporary.iterdir()) == [folders["alive"], folders["young"]]
    assert list(own_cache.glob(".*.part")) == [parts[1]]


PROCESS = """
import sys, time
import torch
from fedrec.native.kernel import Kernel
from fedrec.native.source import KernelSource

print("ready", flush=True)
sys.stdin.readline()
for number in range(3):
    x = torch.zeros(3)
    source = KernelSource(f"many{number}", (("real*", "x"),), f"x[item] = {number};")
    Kernel(source, torch.device("cpu"))(3, x=x)
    assert x.tolist() == [number] * 3
"""


def started(own_cache, own_temporary, **environment):
    """A process that compiles kernels as soon as it is told to."""
    known = {**os.environ, "PYTHONPATH": str(ROOT), cache.CACHE: str(own_cache), "TMPDIR": str(own_temporary)}
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS],
        env={**known, **environment}, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout.readline() == "ready\n"
    return process


def test_two_processes_that_compile_at_once_leave_a_whole_cache(own_cache, own_temporary):
    processes = [started(own_cache, own_temporary) for _ in range(2)]
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in processes:
        process.communicate()
        assert process.returncode == 0
    libraries = sorted(own_cache.glob("*.so"))
    assert len(libraries) == 3
    assert len(list(own_cache.iterdir())) == 9
    assert all(cache._intact(library) for library in libraries)
    assert not list(own_temporary.iterdir())


def test_a_process_that_is_killed_while_it_compiles_leaves_nothing_in_the_cache(
    own_cache, own_temporary, tmp_path
):
    programs, mark = tmp_path / "programs", tmp_path / "mark"
    programs.mkdir()
    script = programs / "cc"
    script.write_text(
        '#!/bin/sh\n[ "$1" = --version ] && echo "cc 1" && exit\n'
        f"echo $$ > {mark}.new\nmv {mark}.new {mark}\nexec sleep 60\n"
    )
    script.chmod(0o755)
    with started(own_cache, own_temporary, PATH=f"{programs}:{os.environ['PATH']}") as process:
        process.stdin.write("\n")
        process.stdin.flush()
        while not mark.exists():
            time.sleep(0.01)
        process.kill()
    os.kill(int(mark.read_text()), 9)
    assert not list(own_cache.iterdir())
    (left,) = own_temporary.glob("fedrec-kernels-*")
    os.utime(left, (0, 0))
    filled()
    assert not left.exists()


@pytest.mark.parametrize("damage", [b"", b"other bytes"])
def test_a_binary_for_a_gpu_is_compared_before_it_is_loaded(damage, own_cache):
    seen = []

    def load(path):
        seen.append(path.read_bytes())

    for content in (None, damage):
        if content is not None:
            (own_cache / "k.cubin").write_bytes(content)
        for _ in range(2):
            cache.loaded_kernel(
                "k.cubin", "text", lambda path: path.write_bytes(b"\x7fELF" + bytes(80)), load
            )
    assert seen == [b"\x7fELF" + bytes(80)] * 4


def test_a_kernel_that_cannot_be_loaded_is_compiled_again_once(own_cache, compiled, caplog):
    filled()
    library = library_in(own_cache)
    library.write_bytes(b"no library")
    with_checksum(library)
    filled()
    assert len(compiled) == 2
    assert "cannot be loaded and is compiled again" in caplog.text
    filled()
    assert len(compiled) == 2
