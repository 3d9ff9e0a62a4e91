"""What a loss may do to be compiled, and what is refused in which words."""

import pytest
import torch
from torch.nn import functional

from fedrec.federation.engines.fused.backend.lower import lower_loss
from fedrec.federation.engines.fused.ir.dims import SAMPLES
from fedrec.federation.engines.fused.ir.nodes import Leaf, UnsupportedError
from fedrec.federation.engines.fused.trace.loss_graph import trace_loss
from fedrec.federation.engines.fused.trace.sizes import FIRST
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


def labels_changed_in_place(w, batch):
    batch.labels.mul_(2)
    return batch.mean(scores(w, batch) * batch.labels)


def branching(w, batch):
    return batch.mean(scores(w, batch)) * (2 if w.p.detach().numpy().sum() > 0 else 1)


def on_its_third_line(w, batch):
    values = scores(w, batch)
    return batch.mean(values.cumsum(0))


def derived_on_its_third_line(w, batch):
    rows = w.Q[batch.items]
    return batch.mean(rows[:, ::2].sum(-1) + dot(rows, w.p))


REFUSED = {
    "changes a tensor in place and also reads a view of it": changed_in_place,
    "changes one of its inputs in place": labels_changed_in_place,
    "reads rows of Q that are not the mini-batch's": lambda w, _: w.Q[OTHERS].sum(),
    "uses an operator that has no compiled form (aten.sort": lambda w, batch: batch.mean(
        w.Q[batch.items].sort(-1).values[..., 0]
    ),
    "uses an operator that has no compiled form (aten.cumsum": on_its_third_line,
    "uses an operator that has no compiled form (aten.rand_like": lambda w, batch: batch.mean(
        torch.rand_like(batch.labels) * scores(w, batch)
    ),
    "uses an operator that has no compiled form (aten._local_scalar_dense": lambda w, batch: (
        batch.mean(scores(w, batch)) * w.p.sum().item()
    ),
    "reads the values of a tensor (numpy)": branching,
    "computes numbers of the type torch.int8 (aten._to_copy": lambda w, batch: batch.mean(
        scores(w, batch) * (scores(w, batch) * 8).to(torch.int8)
    ),
    "computes numbers of the type torch.float16 (aten._to_copy": lambda w, batch: batch.mean(
        scores(w, batch).half().to(w.p.dtype)
    ),
    "computes numbers of the type torch.bool (aten.add": lambda w, batch: batch.mean(
        scores(w, batch) * ((batch.labels > 0) + (scores(w, batch) > 0))
    ),
    "uses the argument weight, which is not compiled": lambda w, batch: batch.mean(
        functional.binary_cross_entropy_with_logits(
            scores(w, batch), batch.labels, weight=batch.labels, reduction="none"
        )
    ),
    "uses a norm of order 4": lambda w, batch: batch.mean(torch.linalg.vector_norm(w.Q[batch.items], 4, -1)),
    "reads the squared norm of all of Q": lambda w, _: w.Q.squared_norm().sum(),
    "reads the sum of all rows of Q": lambda w, _: w.Q.row_sum().sum(),
    "cannot be traced: mat1 and mat2": lambda w, _: (w.p @ w.p).sum(),
    "uses a tensor that is no parameter": lambda w, _: dot(w.p, NOBODY).sum(),
    "folds samples into another axis": lambda w, batch: w.Q[batch.items].reshape(-1).square().sum(),
    "picks some samples or rows": lambda w, batch: w.Q[batch.items][1:].sum(),
    "picks one of all samples or rows": lambda w, batch: w.Q[batch.items][0].sum(),
    "changes every n-th number of an axis": derived_on_its_third_line,
    "goes by the number of samples in an unusual way": lambda w, batch: (
        scores(w, batch).sum() * len(batch.labels) ** 0.5
    ),
    "joins samples": lambda w, batch: torch.cat((scores(w, batch), scores(w, batch))).square().sum(),
    "compares all samples of a mini-batch": lambda w, batch: (w.Q[batch.items] @ w.Q[batch.items].T).sum(),
    "takes a mean of more or less than one number per sample": lambda w, batch: batch.mean(w.Q[batch.items]),
    "reduces more or less than one number per sample": lambda w, batch: batch.sum(w.Q[batch.items]).sum(),
    "gives more than one number for a client": lambda w, batch: scores(w, batch),
    "computes a number for every row of a table, and needs it in a second loop": lambda w, _: (
        dot(w.Q.whole(), w.p).softmax(-1).square().sum()
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_loss_that_cannot_be_compiled_is_refused_with_a_reason(reason):
    with pytest.raises(UnsupportedError, match="its loss") as told:
        lower_loss(trace_loss(METHOD, REFUSED[reason], ["Q", "p"]), "")
    assert str(told.value).startswith(f"its loss {reason}")


@pytest.mark.parametrize(
    ("loss", "operator"), [(on_its_third_line, "cumsum"), (derived_on_its_third_line, "slice_backward")]
)
def test_the_reason_names_the_operator_and_its_line(loss, operator):
    """One that only the derivative has is named by the line whose derivative it is."""
    line = loss.__code__.co_firstlineno + 2
    with pytest.raises(UnsupportedError) as told:
        trace_loss(METHOD, loss, ["Q", "p"])
    assert str(told.value).endswith(f"(aten.{operator} at test_graph.py:{line})")


def test_a_row_that_moves_by_what_another_table_was_is_refused():
    class OfTwo(FedMF):
        def parameters(self) -> dict[str, Parameter]:
            return super().parameters() | {"D": item_table(self.items, 4, "private", Initial("normal", 1.0))}

    def difference(w, batch):
        return batch.mean(scores(w, batch)) + (w.Q.whole() - w.D.whole()).square().sum()

    method = OfTwo({**METHOD.settings, "d": 4}, 80)
    with pytest.raises(
        UnsupportedError, match="computes the gradient of a row from other numbers of whole tables"
    ):
        lower_loss(trace_loss(method, difference, ["Q", "D", "p"]), "")
    assert lower_loss(trace_loss(method, difference, ["Q", "p"]), "").gradients


def test_a_parameter_that_clients_do_not_have_is_refused():
    with pytest.raises(UnsupportedError, match="no parameter g to train"):
        trace_loss(METHOD, METHOD.loss, ["Q", "g"])


def test_what_a_loss_does_not_use_has_no_gradient_at_all():
    """Not even 0: torch.optim leaves it where it is, whatever its weight decay."""
    gradients = trace_loss(
        METHOD, lambda w, batch: batch.mean(w.Q[batch.items].sum(-1)), ["Q", "p"]
    ).gradients
    assert {leaf.name for leaf in gradients} == {"Q"}


@pytest.mark.parametrize("redundancy", ["au", "duorec"])
def test_the_reason_is_given_and_not_the_operator_that_torch_comes_by_first(redundancy):
    method = method_of("fedmf+plgc", f"redundancy={redundancy}")
    (fit,) = (operation for operation in trace(method, 1) if isinstance(operation, Fit))
    with pytest.raises(UnsupportedError, match="compares all samples of a mini-batch with each other"):
        lower_loss(trace_loss(method, fit.loss, list(fit.steps[0].rates)), "")


def test_a_loss_that_goes_by_the_value_of_a_parameter_is_refused():
    with pytest.raises(UnsupportedError, match="its loss"):
        trace_loss(METHOD, lambda w, _: w.p.sum() if w.p.sum() > 0 else -w.p.sum(), ["p"])


@pytest.mark.parametrize("size", FIRST.values())
def test_a_width_that_stands_for_a_number_of_samples_or_rows_is_refused(size):
    class Wide(FedMF):
        def parameters(self) -> dict[str, Parameter]:
            spread = Initial("normal", 1.0)
            return {"Q": item_table(self.items, size, "shared", spread), "p": vector(size, "private", spread)}

    wide = Wide(settings_of("fedmf"), 80)
    with pytest.raises(UnsupportedError, match="a size that the trace reserves"):
        trace_loss(wide, wide.loss, ["Q", "p"])


def test_a_gradient_is_known_for_all_parts_of_what_is_trained_and_for_nothing_else():
    of_both, of_rows = (trace_loss(METHOD, METHOD.loss, names).gradients for names in (["Q", "p"], ["Q"]))
    parts = {Leaf(part, "Q") for part in ("rows", "whole", "training_sum")}
    assert set(of_both) == parts | {Leaf("value", "p")}
    assert set(of_rows) == parts
    assert of_rows[Leaf("rows", "Q")].shape == (SAMPLES, 4)
    assert of_both[Leaf("value", "p")].shape == (1, 4)


def test_what_a_loss_does_not_depend_on_has_no_gradient():
    gradients = lower_loss(trace_loss(METHOD, METHOD.loss, ["Q", "p"]), "").gradients
    zero = {leaf.part for leaf, gradient in gradients.items() if gradient.is_zero}
    assert zero == {"whole", "training_sum"}


@pytest.mark.parametrize("size", FIRST.values())
def test_a_number_is_not_taken_for_a_size(size):
    code = lower_loss(
        trace_loss(METHOD, lambda w, batch: batch.mean(scores(w, batch) * (2 * size)), ["p"]), ""
    )
    assert 2.0 * size in code.constants


@pytest.mark.parametrize(
    "loss",
    [
        lambda w, batch: scores(w, batch).sum() / len(batch.labels),
        lambda w, batch: scores(w, batch).sum() * (1 / len(batch.labels)),
    ],
)
def test_the_size_of_the_made_up_mini_batch_is_not_taken_for_a_number(loss):
    code = lower_loss(trace_loss(METHOD, loss, ["p"]), "")
    assert code.constants == []
    assert not any(str(FIRST[SAMPLES]) in line for stage in code.stages for line in stage.client)
