"""Adam without torch's class around it."""

import subprocess
import sys

import pytest
import torch

from fedrec.central.adam import Adam

SHAPES = {"x": (5, 3), "y": (3,), "unused": (2,)}


def values():
    draw = torch.Generator().manual_seed(7)
    return {name: torch.randn(shape, generator=draw).requires_grad_() for name, shape in SHAPES.items()}


def loss_of(w):
    return (w["x"] @ w["y"]).square().sum()


def test_steps_are_those_of_torch():
    own, expected = values(), values()
    adam, reference = Adam(own, 0.1), torch.optim.Adam(expected.values(), lr=0.1, fused=True)
    for _ in range(5):
        adam.step(loss_of(own))
        reference.zero_grad()
        loss_of(expected).backward()
        reference.step()
    assert all(torch.equal(own[name], expected[name]) for name in SHAPES)
    assert torch.equal(own["unused"], values()["unused"])


@pytest.mark.parametrize(
    "loss",
    [
        lambda w: (w["x"].t() * torch.linspace(-7, 7, 15).view(3, 5)).sum(),
        lambda w: (w["x"][:, 0] * torch.arange(5.0)).sum() + w["y"].sum(),
    ],
    ids=["turned", "stretched"],
)
def test_gradients_are_read_however_they_lie_in_memory(loss):
    own, expected = values(), values()
    Adam(own, 0.1).step(loss(own))
    reference = torch.optim.Adam(expected.values(), lr=0.1)
    loss(expected).backward()
    reference.step()
    assert all(torch.allclose(own[name], expected[name]) for name in SHAPES)


@pytest.mark.parametrize("after", [0, 2])
def test_it_goes_on_from_its_state(after):
    whole = values()
    adam = Adam(whole, 0.1)
    for _ in range(after):
        adam.step(loss_of(whole))
    again = {name: value.detach().clone().requires_grad_() for name, value in whole.items()}
    other = Adam(again, 0.1)
    other.load({name: tensor.clone() for name, tensor in adam.tensors()})
    for learner, weights in ((adam, whole), (other, again)):
        learner.step(loss_of(weights))
    assert all(torch.equal(whole[name], again[name]) for name in SHAPES)


def test_the_compiler_of_torch_is_not_imported():
    """It takes as long as torch itself, in every process."""
    script = (
        "import sys, torch; from fedrec.central.adam import Adam; x = torch.ones(2, requires_grad=True);"
        " Adam({'x': x}, 0.1).step(x.sum()); sys.exit('torch._dynamo' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
