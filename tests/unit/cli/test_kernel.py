"""`fedrec kernel`: the text that is printed is the text that is compiled, and what is not compiled says why."""

import re

import pytest
import torch

from fedrec.cli.main import main
from fedrec.federation.engines.fused.compiling import compiled_fit
from fedrec.federation.engines.fused.passes.schedule import PASSES
from fedrec.federation.model.client import Fit
from fedrec.federation.program import trace, trace_after_aggregation, trains
from tests.conftest import ROOT
from tests.federations import METHODS, method_of, precision, settings_of

TRAINED = [
    name
    for name in (*METHODS, "fedmf+plgc", "fedncf+em")
    if name[0] != "+" and (method := method_of(name)) and trains(trace(method, 1))
]


@pytest.fixture(autouse=True)
def at_the_root(monkeypatch):
    """Defaults name files of the project."""
    monkeypatch.chdir(ROOT)


def printed(capsys, *arguments):
    assert main(["kernel", *arguments]) == 0
    return capsys.readouterr().out


def refused(capsys, *arguments):
    assert main(["kernel", *arguments]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_what_is_printed_is_what_is_compiled(capsys, dtype):
    method, batch = method_of("fedmf", "d=4"), settings_of("fedmf")["batch_size"]
    (fit,) = (operation for operation in trace(method, 1) if isinstance(operation, Fit))
    with precision(dtype):
        kernel = compiled_fit(method, fit, torch.device("cpu"), batch).kernel
    double = ["--double"] if dtype == torch.float64 else []
    heading, _, program = printed(capsys, "fedmf", "--set", "d=4", *double).partition("*/\n")
    assert program.strip() == kernel.source.for_cpu().strip()
    assert "fedmf" in heading
    assert "Trains Q, p by Adam: 10 epochs over its samples, mini-batches of 256." in heading


@pytest.mark.parametrize("name", ["mf", "ncf"])
def test_a_model_of_all_users_has_an_epoch(capsys, name):
    text = printed(capsys, name)
    assert "round 1, an epoch of all users: fit 1 of 1.\n   Trains P, Q" in text
    assert text.partition("*/")[2].strip()


@pytest.mark.parametrize("name", TRAINED)
def test_every_fit_has_a_heading_and_a_program_or_a_reason(capsys, name):
    method = method_of(name)
    fits = [
        operation
        for program in (trace(method, 1), trace_after_aggregation(method, 1)[0])
        for operation in program
        if isinstance(operation, Fit)
    ]
    text = printed(capsys, name, "--device", "cuda")
    assert len(re.findall(r"^/\* .*: fit \d of \d\.$", text, re.MULTILINE)) == len(fits) > 0
    reasons, programs = text.count("Not compiled, so the batched engine trains it"), text.count("__global__")
    assert reasons + programs == len(fits)


def test_a_gpu_has_two_lanes_for_a_sample_of_a_mini_batch(capsys):
    text = printed(capsys, "fedmf", "--set", "batch_size=60", "--device", "cuda")
    assert "CUDA C, 128 lanes a client, in single precision" in text


def test_what_clients_do_after_aggregation_is_printed_too(capsys):
    text = printed(capsys, "fedrecon")
    assert "round 1, the local round: fit 1 of 2." in text
    assert "round 1, after aggregation: fit 1 of 1." in text


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("fedrap", "--set", "dp_noise=1"), "noise to the gradient of every row"),
        (("fedmf+plgc", "--set", "redundancy=au"), "compares all samples of a mini-batch"),
    ],
)
def test_a_fit_that_is_not_compiled_says_why(capsys, arguments, reason):
    text = printed(capsys, *arguments)
    heading, _, program = text.partition("*/")
    assert reason in heading
    assert program.strip() == ""


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_passes_are_listed_with_the_names_of_the_kernel_and_origins(capsys, device):
    listing = printed(capsys, "fedmf", "--passes", "--device", device)
    kernel = printed(capsys, "fedmf", "--device", device)
    titles = re.findall(r"^([a-z ]+):$", listing, re.MULTILINE)
    assert titles == ["trace", *(each.__name__.strip("_").replace("_", " ") for each in PASSES)]
    traced = listing.partition("trace:\n")[2].partition("own gradients:")[0]
    names = set(re.findall(r"^  (s0_\d+) ", traced, re.MULTILINE))
    assert len(names) == len(traced.splitlines())
    assert set(re.findall(r"\bs0_\d+\b", kernel.partition("*/")[2])) <= names
    assert re.search(r"s0_\d+ \(samples\) = sum over \(16\) of s0_\d+  # aten.sum at fedmf.py:\d+", traced)


def test_precision_is_what_it_was_afterwards(capsys):
    printed(capsys, "fedmf", "--double")
    assert torch.get_default_dtype() == torch.float32


@pytest.mark.parametrize(
    ("arguments", "answer"),
    [
        (("fedmff",), "Did you mean 'fedmf'?"),
        (("popularity",), "popularity has no compiled gradient steps, so there is nothing to show."),
        (("lightgcn",), "lightgcn has no compiled gradient steps, so there is nothing to show."),
        (("fedmf", "--paper", "pfedcrl"), "--paper: unknown paper 'pfedcrl'. Did you mean 'pfedclr'?"),
        (("fedmf", "--round", "0"), "rounds count from 1. Give 1 or more."),
    ],
)
def test_mistakes_are_reported(capsys, arguments, answer):
    assert answer in refused(capsys, *arguments)
