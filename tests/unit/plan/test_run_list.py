"""Lists of runs: what a line may say, and which line is told where one is wrong."""

import json

import pytest

from fedrec.errors import ConfigurationError
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.run_list import list_text, read_list
from tests.federations import METHODS

RUN = {"data": "results/data/made", "method": "fedmf", "protocol": "clean", "out": "runs/a"}


@pytest.fixture
def listed(tmp_path):
    """Reads a list of such lines: texts as they are, runs as JSON."""

    def read(*lines):
        path = tmp_path / "runs.jsonl"
        path.write_text("".join(line if isinstance(line, str) else f"{json.dumps(line)}\n" for line in lines))
        return read_list(path, METHODS)

    return read


def test_what_is_written_is_read_and_becomes_options_of_train(listed):
    whole = RUN | {
        "method": "fedmf[d=4][rounds=2]", "paper": "fedem", "seed": 3, "record": ["traffic"], "engine": "loop",
        "device": "cpu", "memory": 0.5, "checkpoint-seconds": 0, "seconds": 12.5, "code": run_fingerprint("fedmf"),
    }  # fmt: skip
    (run,) = listed(whole)
    assert run.as_line() == whole
    assert run.seconds == 12.5
    assert run.request.arguments() == (
        "train", "--data=results/data/made", "--method=fedmf[d=4][rounds=2]", "--paper=fedem", "--protocol=clean", "--seed=3",
        "--engine=loop", "--device=cpu", "--memory=0.5", "--checkpoint-seconds=0",
        "--record=traffic", "--out=runs/a",
    )  # fmt: skip


def test_settings_of_a_line_become_part_of_the_methods_name(listed):
    named = RUN | {"method": "fedmf[d=4][rounds=2]"}
    (run,) = listed(RUN | {"set": ["rounds=2", "d=4"]}, named)
    assert (run.request.method, run.request.changes) == (named["method"], ())
    with pytest.raises(
        ConfigurationError, match=r"line 2: fedmf\[d=4\] sets d=4, and d=8 is set again\. Set it once\."
    ):
        listed(RUN, RUN | {"method": "fedmf[d=4]", "set": ["d=8"]})


def test_empty_lines_are_no_runs_and_one_listed_twice_is_one(listed):
    again = {key: RUN[key] for key in reversed(RUN)} | {"seconds": 9.0}
    assert [run.out.name for run in listed(RUN, "\n", RUN | {"out": "runs/b"}, again)] == ["a", "b"]
    assert listed("\n") == []


def test_runs_of_a_kind_differ_in_seed_and_protocol_alone(listed):
    first, seed, protocol, other, changed = listed(
        RUN,
        RUN | {"out": "b", "seed": 1},
        RUN | {"out": "c", "protocol": "published"},
        RUN | {"out": "d", "method": "pfedrec"},
        RUN | {"out": "e", "set": ["d=4"]},
    )
    assert first.kind == seed.kind == protocol.kind
    assert len({first.kind, other.kind, changed.kind}) == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{\n", r"runs.jsonl, line 2: not valid JSON \(.*\)\. Write one run per line: \{\.\.\.\}\.$"),
        ("[1]\n", r"line 2: write a run as \{\"data\": \.\.\., \"method\": \.\.\., \.\.\.\}\.$"),
        (RUN | {"methd": "x"}, r"line 2: unknown key 'methd'. Did you mean 'method'\? Known keys: data, method, paper, "),
        ({"data": "a", "method": "fedmf"}, "line 2: 'protocol' is missing. Every run needs data, method, protocol, out"),
        (RUN | {"seed": "0"}, r"line 2, seed: \"0\" is not an integer"),
        (RUN | {"seed": True}, r"line 2, seed: true is not an integer"),
        (RUN | {"set": "d=4"}, r"line 2, set: \"d=4\" is not a list of texts"),
        (RUN | {"out": ""}, r"line 2, out: \"\" is not a text"),
        (RUN | {"memory": -1}, r"line 2, memory: -1 is not a number from 0"),
        (RUN | {"method": "fedfm"}, r"line 2: unknown method 'fedfm'. Did you mean"),
        (RUN | {"set": ["dd=4"]}, r"line 2: .*'dd'"),
        (RUN | {"seed": 1}, r"line 2: writes to runs/a, and so does another run \(.*, line 1\)"),
        (RUN | {"out": "b", "code": "0" * 64}, "than here, so the machine that planned it would not accept the run."),
    ],
)  # fmt: skip
def test_a_line_that_is_wrong_is_named(listed, line, said):
    with pytest.raises(ConfigurationError, match=said):
        listed(RUN, line)


def test_a_file_that_is_no_list_is_reported(tmp_path):
    with pytest.raises(
        ConfigurationError, match=r"gone: no such file\. Write one with: fedrec plan TARGET > .*gone"
    ):
        read_list(tmp_path / "gone", METHODS)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(
        ConfigurationError,
        match=r"is not a run list, which is a text file\. Write one with: fedrec plan TARGET > runs\.jsonl",
    ):
        read_list(tmp_path / "bytes", METHODS)


def test_a_list_is_a_run_per_line(listed):
    text = list_text(listed(RUN, RUN | {"out": "é"}))
    assert [json.loads(line)["out"] for line in text.splitlines()] == ["runs/a", "é"]
