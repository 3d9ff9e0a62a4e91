"""Fixtures that workers share: built once, by one of them, and again where that failed."""

import multiprocessing
import os

import pytest

from tests.once import once_for_all_workers


class Factory:
    """Gives the folder pytest would give a worker."""

    def __init__(self, base):
        self._base = base

    def getbasetemp(self):
        return self._base


def _ask(base, worker):
    os.environ["PYTEST_XDIST_WORKER"] = worker
    (base / worker).mkdir()

    def build(folder):
        with (base / "built").open("a") as stream:
            stream.write(f"{worker}\n")
        (folder / "file").write_text("made")

    folder = once_for_all_workers(Factory(base / worker), "thing", build)
    assert (folder / "file").read_text() == "made"


def test_one_of_several_workers_builds(tmp_path):
    workers = [
        multiprocessing.get_context("spawn").Process(target=_ask, args=(tmp_path, f"gw{number}"))
        for number in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert len((tmp_path / "built").read_text().splitlines()) == 1


def test_what_failed_is_built_anew(tmp_path, monkeypatch):
    monkeypatch.delenv("PYTEST_XDIST_WORKER", raising=False)

    def fails(folder):
        (folder / "half").touch()
        raise OSError("no")

    with pytest.raises(OSError, match="no"):
        once_for_all_workers(Factory(tmp_path), "thing", fails)
    folder = once_for_all_workers(Factory(tmp_path), "thing", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]
