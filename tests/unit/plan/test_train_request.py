"""Options of a run: each is the same on the command line, on a line of a list, and in `TrainRequest`."""

from dataclasses import MISSING, fields
from pathlib import Path

import pytest

from fedrec.cli.main import main
from fedrec.errors import ConfigurationError
from fedrec.plan.train_request import OPTIONS, REQUIRED, TrainRequest
from tests.conftest import ROOT

LEAST = TrainRequest(data=Path("data/made"), method="fedmf", protocol="clean", seed=0, out=Path("runs/a"))
WHOLE = TrainRequest(
    data=Path("data/made"), method="fedmf+plgc[beta=0.3]", paper="plgc", protocol="published", seed=7,
    changes=("d=4", "rounds=2"), engine="loop", device="cpu", memory_gib=0.5, checkpoint_seconds=2.5,
    diverged="kept", record=("traffic", "vectors=1,2"), out=Path("runs/a"),
    also={"only-ties": Path("runs/b"), "only-lists": Path("runs/c=d")}, model="always", force=True, replace=True,
    strict=True,
)  # fmt: skip


@pytest.fixture
def asked(monkeypatch):
    """Calls `fedrec`; returns the request that training would get."""
    requests = []

    def refuse(request, _methods):
        requests.append(request)
        raise ConfigurationError("enough")

    def call(arguments):
        assert main([*arguments, f"--methods={ROOT / 'config/methods.yaml'}"]) == 1
        return requests.pop()

    monkeypatch.setattr("fedrec.runs.train.train", refuse)
    return call


@pytest.mark.parametrize("request_", [LEAST, WHOLE])
def test_the_command_reads_the_request_that_its_arguments_spell(asked, request_):
    assert asked(request_.arguments()) == request_


def test_a_line_of_a_list_has_every_option_of_the_run_and_none_at_its_default():
    line = WHOLE.as_line()
    assert set(line) == set(OPTIONS)
    listed = {name for name, _ in OPTIONS.values()}
    read = TrainRequest.from_line(line)
    assert {name: getattr(read, name) for name in listed} == {name: getattr(WHOLE, name) for name in listed}
    assert set(LEAST.as_line()) == {*REQUIRED, "seed"}
    assert TrainRequest.from_line(LEAST.as_line()) == LEAST


def test_no_option_of_the_whole_request_is_at_its_default():
    """So that an option which the command or a list forgets is found."""
    assert not [
        one.name for one in fields(TrainRequest) if one.default is not MISSING and getattr(WHOLE, one.name) == one.default
    ]  # fmt: skip
