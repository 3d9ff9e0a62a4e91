"""What a loss may do to be compiled, and what is refused in which words."""

import pytest
import torch

from fedrec.federation.engines.fused.graph import traced
from fedrec.federation.engines.fused.lower import lowered
from fedrec.federation.engines.fused.nodes import ROWS, SAMPLES, Leaf, UnsupportedError
from fedrec.federation.model import Initial, Parameter, item_table, vector
from fedrec.federation.model.client import Fit
from fedrec.federation.model.weights import dot
from fedrec.federation.program import trace
from fedrec.methods.fedmf import FedMF
from tests.federations import method_of, settings_of

METHOD = method_of("fedmf", "d=4")
OTHERS = torch.arange(3)
NOBODY = torch.linspace(0.1, 0.4, 4)
"""A tensor that is no parameter of the method."""


def scores(w, batch):
    return dot(w.Q[batch.items], w.p)


def changed_in_place(w, batch):
    values = scores(w, batch) * 2
    column = values.unsqueeze(1)
    values.masked_fill_(batch.labels > 0, 0.0)
    return batch.mean(values * column.squeeze(1))


REFUSED = {
    "changes a tensor in place that it also sees in another shape": changed_in_place,
    "looks up other rows of Q than the mini-batch's": lambda w, _: w.Q[OTHERS].sum(),
    "uses the operator aten.erf.default": lambda w, batch: batch.mean(torch.erf(scores(w, batch))),
    "uses the operator aten.cumsum.default": lambda w, batch: batch.mean(scores(w, batch).cumsum(0)),
    "uses aten.add.Tensor with a factor": lambda w, _: torch.add(w.p, w.p, alpha=3).sum(),
    "cannot be traced: nothing": lambda w, _: w.nothing.sum(),
    "uses a tensor that is no parameter": lambda w, _: dot(w.p, NOBODY).sum(),
    "folds samples into another axis": lambda w, batch: w.Q[batch.items].reshape(-1).square().sum(),
    "cuts a tensor in an unusual way": lambda w, batch: w.Q[batch.items][1:].sum(),
    "divides by the number of samples in an unusual way": lambda w, batch: (
        scores(w, batch).sum() * (1 / len(batch.items))
    ),
    "goes by the number of samples in an unusual way": lambda w, batch: (
        scores(w, batch).sum() * len(batch.items) ** 0.5
    ),
    "joins samples": lambda w, batch: torch.cat((scores(w, batch), scores(w, batch))).square().sum(),
    "compares all samples of a mini-batch": lambda w, batch: (w.Q[batch.items] @ w.Q[batch.items].T).sum(),
    "looks for the largest of all samples": lambda w, batch: scores(w, batch).amax(),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_loss_that_cannot_be_compiled_is_refused_with_a_reason(reason):
    with pytest.raises(UnsupportedError, match="its loss") as told:
        lowered(traced(METHOD, REFUSED[reason], ["Q", "p"]), "", gpu=False)
    assert str(told.value).startswith(f"its loss {reason}")


@pytest.mark.parametrize("redundancy", ["au", "duorec"])
def test_the_reason_is_told_and_not_the_operator_that_torch_comes_by_first(redundancy):
    method = method_of("fedmf+plgc", f"redundancy={redundancy}")
    (fit,) = (operation for operation in trace(method, 1) if isinstance(operation, Fit))
    with pytest.raises(UnsupportedError, match="compares all samples of a mini-batch with each other"):
        lowered(traced(method, fit.loss, list(fit.steps[0].rates)), "", gpu=False)


def test_a_loss_that_goes_by_the_value_of_a_parameter_is_refused():
    with pytest.raises(UnsupportedError, match="its loss"):
        traced(METHOD, lambda w, _: w.p.sum() if w.p.sum() > 0 else -w.p.sum(), ["p"])


@pytest.mark.parametrize("size", [SAMPLES, ROWS])
def test_a_width_that_stands_for_a_number_of_samples_or_rows_is_refused(size):
    class Wide(FedMF):
        def parameters(self) -> dict[str, Parameter]:
            spread = Initial("normal", 1.0)
            return {"Q": item_table(self.items, size, "shared", spread), "p": vector(size, "private", spread)}

    wide = Wide(settings_of("fedmf"), 80)
    with pytest.raises(UnsupportedError, match="a size that stands for another"):
        traced(wide, wide.loss, ["Q", "p"])


def test_a_gradient_is_known_for_all_parts_of_what_is_trained_and_for_nothing_else():
    of_both, of_rows = (traced(METHOD, METHOD.loss, names).gradients for names in (["Q", "p"], ["Q"]))
    parts = {Leaf(part, "Q") for part in ("rows", "whole", "training_sum")}
    assert set(of_both) == parts | {Leaf("value", "p")}
    assert set(of_rows) == parts
    assert of_rows[Leaf("rows", "Q")].shape == (SAMPLES, 4)
    assert of_both[Leaf("value", "p")].shape == (1, 4)


def test_what_a_loss_does_not_depend_on_has_no_gradient():
    gradients = lowered(traced(METHOD, METHOD.loss, ["Q", "p"]), "", gpu=False).gradients
    zero = {leaf.part for leaf, gradient in gradients.items() if gradient.is_zero}
    assert zero == {"whole", "training_sum"}


def test_the_size_of_the_made_up_mini_batch_is_not_taken_for_a_number():
    code = lowered(
        traced(METHOD, lambda w, batch: scores(w, batch).sum() / len(batch.items), ["p"]), "", gpu=False
    )
    assert code.constants == []
    assert not any(str(SAMPLES) in line for stage in code.stages for line in stage.client)
