"""Losses that keep to the rules: each is trained to the numbers of the loop, compiled or not."""

import math

import torch
from torch import Tensor
from torch.nn import functional

from fedrec.federation.model import Batch, Weights, dot
from tests.programs.cases import Corpus

LOSSES = Corpus()
_loss = LOSSES.loss


def scores(w: Weights, batch: Batch) -> Tensor:
    """The logit of each sample."""
    return dot(w.Q[batch.items], w.p)


def entropies(values: Tensor, batch: Batch) -> Tensor:
    """The cross-entropy of each sample."""
    return functional.binary_cross_entropy_with_logits(values, batch.labels, reduction="none")


def fitted(values: Tensor, batch: Batch) -> Tensor:
    """The mean of the samples' cross-entropies, which a case changes or adds to."""
    return batch.mean(entropies(values, batch))


# Casts


@_loss(quick=True)
def to_long(w, batch):
    """A cast to whole numbers drops fractions."""
    s = scores(w, batch)
    return fitted(s, batch) + batch.mean((s * 3).long() * s)


@_loss()
def to_int_and_back(w, batch):
    """A cast to int32 and back, as a step function."""
    s = scores(w, batch)
    return fitted(s + (s * 4).int().to(s.dtype) / 4, batch)


@_loss(quick=True)
def quantised(w, batch):
    """Rows of eight bits with the gradient passed straight through, as quantisation-aware losses are written."""
    q = w.Q[batch.items]
    coarse = (q * 8).to(torch.int8).to(q.dtype) / 8
    return fitted(dot(q + (coarse - q).detach(), w.p), batch)


@_loss()
def to_unsigned_bytes(w, batch):
    """A cast to uint8 and back."""
    q = w.Q[batch.items]
    coarse = (q.square() * 8).to(torch.uint8).to(q.dtype) / 8
    return fitted(dot(q + (coarse - q).detach(), w.p), batch)


@_loss(quick=True)
def to_bool_and_back(w, batch):
    """Any number but 0 becomes 1."""
    s = scores(w, batch)
    return fitted(s, batch) + batch.mean(s.bool().to(s.dtype) * s)


@_loss()
def smoothed_labels_as_bool(w, batch):
    """Smoothed labels become masks of ones."""
    s = scores(w, batch)
    mask = (batch.labels * 0.9 + 0.05).bool()
    return batch.mean(torch.where(mask, s, -s).sigmoid())


@_loss(quick=True)
def labels_as_bool(w, batch):
    """Labels as the mask that they are."""
    s = scores(w, batch)
    return batch.mean(torch.where(batch.labels.bool(), functional.softplus(-s), functional.softplus(s)))


@_loss()
def labels_to_long(w, batch):
    """Labels as whole numbers times scores."""
    s = scores(w, batch)
    return batch.mean(functional.softplus(s) - batch.labels.long() * s)


@_loss()
def labels_to_byte_compared(w, batch):
    """Labels as bytes, compared with a number."""
    s = scores(w, batch)
    return batch.mean(torch.where(batch.labels.to(torch.uint8) == 1, functional.softplus(-s), s.square()))


@_loss(quick=True)
def to_half_and_back(w, batch):
    """Half precision keeps eleven bits."""
    s = scores(w, batch)
    return fitted(s.half().to(s.dtype), batch)


@_loss()
def rounded_to_half(w, batch):
    """Rows in half precision, with the gradient passed straight through."""
    q = w.Q[batch.items]
    return fitted(dot(q + (q.half().to(q.dtype) - q).detach(), w.p), batch)


@_loss()
def to_bfloat_and_back(w, batch):
    """bfloat16 keeps eight bits."""
    s = scores(w, batch)
    return fitted(s.bfloat16().to(s.dtype), batch)


@_loss()
def half_all_through(w, batch):
    """A whole penalty in half precision."""
    q = w.Q[batch.items].half()
    return fitted(scores(w, batch), batch) + 0.1 * batch.mean((q * q).sum(-1).to(batch.labels.dtype))


@_loss(quick=True)
def to_single_and_back(w, batch):
    """Single precision in a run in double."""
    s = scores(w, batch)
    return fitted(s.float().to(s.dtype), batch)


@_loss()
def to_double(w, batch):
    """A cast to the precision it has already."""
    return fitted(scores(w, batch).double(), batch)


@_loss()
def type_of_another(w, batch):
    """`type_as` of a comparison."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.3 * batch.mean((s > 0).type_as(s) * s)


@_loss(quick=True)
def comparison_to_number(w, batch):
    """A comparison, as a number, times a score."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.3 * batch.mean((s > 0.2).to(s.dtype) * s)


@_loss()
def comparison_times_number(w, batch):
    """A comparison meets a number without a cast."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.3 * batch.mean((s > 0.2) * s)


@_loss()
def half_of_int(w, batch):
    """Whole numbers divided by 2 are fractions again."""
    s = scores(w, batch)
    return fitted(s + (s * 3).int() / 2, batch)


# Rounding and whole division


@_loss(quick=True)
def div_trunc(w, batch):
    """Division rounded towards zero."""
    s = scores(w, batch)
    return fitted(s + torch.div(s, 0.3, rounding_mode="trunc"), batch)


@_loss()
def div_floor(w, batch):
    """Division rounded down."""
    s = scores(w, batch)
    return fitted(s + torch.div(s, 0.3, rounding_mode="floor"), batch)


@_loss()
def div_unrounded(w, batch):
    """Division whose rounding mode is None."""
    s = scores(w, batch)
    return fitted(torch.div(s, 0.3, rounding_mode=None), batch)


@_loss(quick=True)
def floor_divide(w, batch):
    """The operator `//`, of what has no gradient."""
    s = scores(w, batch)
    return fitted(s + s.detach() // 0.4, batch)


@_loss()
def floor_divide_by_vector(w, batch):
    """The function `floor_divide` by another tensor."""
    s = scores(w, batch)
    return fitted(s + torch.floor_divide(s.detach(), batch.labels + 1), batch)


@_loss(expected="refused", text="floor_divide")
def floor_divide_differentiated(w, batch):
    """torch knows no gradient of `//`."""
    s = scores(w, batch)
    return fitted(s + s // 0.4, batch)


@_loss()
def remainder(w, batch):
    """The operator `%`."""
    s = scores(w, batch)
    return fitted(s + s % 0.7, batch)


@_loss()
def fmod(w, batch):
    """The remainder that keeps its sign."""
    s = scores(w, batch)
    return fitted(s + torch.fmod(s, 0.7), batch)


@_loss()
def floor_and_ceil(w, batch):
    """Rounded down and up."""
    s = scores(w, batch)
    return fitted(s + (s * 3).floor() / 3 + (s * 2).ceil() / 2, batch)


@_loss()
def round_and_trunc(w, batch):
    """Rounded to the nearest even number, and towards zero."""
    s = scores(w, batch)
    return fitted(s + (s * 3).round() / 3 + (s * 2).trunc() / 2, batch)


@_loss()
def round_decimals(w, batch):
    """Rounded to one decimal."""
    s = scores(w, batch)
    return fitted(s + s.round(decimals=1), batch)


@_loss()
def frac(w, batch):
    """The fraction of a number."""
    s = scores(w, batch)
    return fitted(s + s.frac(), batch)


@_loss()
def bucket_of_scores(w, batch):
    """Scores put into buckets of whole numbers."""
    s = scores(w, batch)
    bucket = (s.detach() + 4) // 0.5
    return batch.mean(entropies(s, batch) * (1 + bucket / 8))


@_loss()
def mean_of_bools_by_int_division(w, batch):
    """A count of comparisons divided by a whole number."""
    q = w.Q[batch.items]
    count = (q > 0).sum(-1) // 2
    return fitted(scores(w, batch) * (1 + count), batch)


# Bounds and powers


@_loss()
def clamp_both(w, batch):
    """Bounds on both sides."""
    return fitted(scores(w, batch).clamp(-1.0, 0.8), batch)


@_loss(quick=True)
def clamp_by_interactions(w, batch):
    """A bound that differs from client to client."""
    bound = w.interactions.squeeze(-1) / 5
    return fitted(scores(w, batch).clamp(max=bound), batch)


@_loss()
def clamp_by_mean(w, batch):
    """A bound that is the mean of a client's scores."""
    s = scores(w, batch)
    return batch.mean((s.square() + 0.1).clamp(max=s.square().detach() * 0.5 + 0.2))


@_loss("t", quick=True)
def clamp_by_one_number(w, batch):
    """A trained bound of one number."""
    return fitted(scores(w, batch).clamp(min=-w.t.squeeze(-1), max=w.t.squeeze(-1)), batch)


@_loss("h")
def clamp_by_vector(w, batch):
    """A trained bound for each dimension."""
    q = torch.clamp(w.Q[batch.items], max=w.h)
    return fitted(dot(q, w.p), batch)


@_loss()
def clamp_by_labels(w, batch):
    """A bound that is a tensor of the samples."""
    return batch.mean(scores(w, batch).clamp(min=batch.labels - 1).square())


@_loss()
def clip_and_hardtanh(w, batch):
    """Other names of bounds."""
    s = scores(w, batch)
    return fitted(s.clip(-0.9, 1.1) + functional.hardtanh(s, -0.5, 0.6), batch)


@_loss(quick=True)
def power_by_interactions(w, batch):
    """An exponent that differs from client to client."""
    s = scores(w, batch).sigmoid()
    return batch.mean(s ** (w.interactions.squeeze(-1) / 4)) + fitted(scores(w, batch), batch)


@_loss()
def power_by_size(w, batch):
    """An exponent that differs from mini-batch to mini-batch."""
    s = scores(w, batch)
    return batch.mean(torch.sigmoid(s) ** (batch.size / 3) * functional.softplus(s))


@_loss()
def power_by_labels(w, batch):
    """An exponent that differs from sample to sample."""
    s = scores(w, batch)
    return batch.mean(torch.sigmoid(s) ** (batch.labels + 0.5))


@_loss("t", quick=True)
def focal_by_parameter(w, batch):
    """A focal loss whose exponent is trained."""
    s = scores(w, batch)
    return batch.mean((1 - torch.sigmoid(s)) ** w.t.squeeze(-1) * entropies(s, batch))


@_loss()
def focal_by_number(w, batch):
    """A focal loss with a written exponent."""
    s = scores(w, batch)
    return batch.mean((1 - torch.sigmoid(s)) ** 1.7 * entropies(s, batch))


@_loss("h")
def power_by_vector(w, batch):
    """An exponent for each dimension."""
    q = w.Q[batch.items].square() + 0.1
    return fitted(dot(q**w.h, w.p), batch)


@_loss()
def power_of_number(w, batch):
    """A number to the power of a score."""
    return fitted(2.0 ** scores(w, batch), batch)


@_loss(quick=True)
def powers_of_all_kinds(w, batch):
    """Whole, negative, broken exponents, and those of 0 and 1."""
    s = scores(w, batch)
    positive = s.square() + 0.5
    return batch.mean(s**3 / 10 + positive**-2 + positive**0.3 + s**1 + positive**-0.5 + s**0) + fitted(
        s, batch
    )


@_loss()
def float_power(w, batch):
    """`float_power`, which computes in double precision."""
    s = scores(w, batch)
    return batch.mean(torch.float_power(s.square() + 0.3, 0.7).to(s.dtype))


# Arithmetic of masks


@_loss(quick=True)
def bool_plus_bool(w, batch):
    """True and True are one True, not 2."""
    s = scores(w, batch)
    either = (s > 0) + (batch.labels > 0)
    return fitted(s, batch) + 0.5 * batch.mean(either * s)


@_loss()
def bool_times_bool(w, batch):
    """A product of masks is a mask."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.5 * batch.mean(((s > 0) * (batch.labels > 0)).to(s.dtype) * s)


@_loss(expected="refused", text="bool|mask|[Ss]ubtraction")
def bool_minus_bool(w, batch):
    """torch refuses to subtract masks, in every engine."""
    s = scores(w, batch)
    return fitted(s, batch) + batch.mean(((s > 0) - (batch.labels > 0)).to(s.dtype) * s)


@_loss(quick=True)
def logic_of_two(w, batch):
    """`&`, `|`, `^` and `~` of comparisons."""
    s = scores(w, batch)
    high, liked = s > 0, batch.labels > 0
    mixed = (high & liked).to(s.dtype) - (high | liked).to(s.dtype) * 0.5 + (high ^ ~liked).to(s.dtype) * 0.25
    return fitted(s, batch) + 0.5 * batch.mean(mixed * s)


@_loss()
def logical_functions(w, batch):
    """The same as functions, of numbers."""
    s = scores(w, batch)
    mask = torch.logical_or(torch.logical_and(s > 0, batch.labels), torch.logical_not(batch.labels))
    return fitted(s, batch) + 0.5 * batch.mean(torch.where(mask, s, s.square()))


@_loss()
def count_of_bools(w, batch):
    """A sum of masks is a whole number."""
    count = (w.Q[batch.items] > 0).sum(-1)
    return fitted(scores(w, batch) * count, batch)


@_loss()
def mean_of_mask(w, batch):
    """The share of samples for which something holds."""
    s = scores(w, batch)
    return fitted(s, batch) * (1 + batch.mean((s > 0).to(s.dtype)))


@_loss()
def any_and_all(w, batch):
    """Whether any, or every number of a row is positive."""
    q = w.Q[batch.items]
    s = scores(w, batch)
    return fitted(s, batch) + 0.2 * batch.mean(((q > 0).any(-1)) * s + ((q < 1).all(-1)) * s)


@_loss()
def masked_fill_of_mask(w, batch):
    """Where the label is 1, a number is put in."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.2 * batch.mean(s.masked_fill(batch.labels == 1, 0.25).square())


# Factors that are given beside operands


@_loss(quick=True)
def rsub_alpha(w, batch):
    """`rsub` with a factor."""
    return fitted(torch.rsub(scores(w, batch), 1.0, alpha=2), batch)


@_loss()
def sub_alpha(w, batch):
    """`sub` with a factor."""
    return fitted(torch.sub(scores(w, batch), batch.labels, alpha=0.5), batch)


@_loss()
def add_alpha(w, batch):
    """`add` with a factor."""
    return fitted(torch.add(scores(w, batch), batch.labels, alpha=-0.5), batch)


@_loss()
def addcmul_and_addcdiv(w, batch):
    """Products and quotients with a factor, added."""
    s = scores(w, batch)
    a = torch.addcmul(s, s, batch.labels, value=0.3)
    return fitted(torch.addcdiv(a, s, batch.labels + 2, value=-0.4), batch)


@_loss()
def lerp(w, batch):
    """A mixture by `lerp`."""
    s = scores(w, batch)
    return fitted(torch.lerp(s, batch.labels, 0.3), batch)


@_loss("D")
def lerp_by_tensor(w, batch):
    """A mixture of rows whose share is a tensor."""
    q, d = w.Q[batch.items], w.D[batch.items]
    return fitted(dot(torch.lerp(q, d, q.sigmoid()), w.p), batch)


# Numbers that functions close over


def _closing_over(gamma: float, whole: int) -> dict:
    """Losses made with numbers that they close over."""

    def closure_power(w, batch):
        """A float that a loss closes over is an exponent."""
        s = scores(w, batch)
        return batch.mean(torch.sigmoid(s) ** gamma * functional.softplus(s))

    def closure_whole_power(w, batch):
        """A whole number that a loss closes over is an exponent."""
        return batch.mean((scores(w, batch) / 2) ** whole)

    def closure_where(w, batch):
        """A float that a loss closes over is taken where labels are 0."""
        s = scores(w, batch)
        return fitted(torch.where(batch.labels > 0, s, s * gamma), batch)

    def closure_clamp(w, batch):
        """A float that a loss closes over is a bound."""
        return fitted(scores(w, batch).clamp(min=-gamma, max=gamma * 0.7), batch)

    def closure_equal(w, batch):
        """A float that a loss closes over is compared with."""
        s = scores(w, batch)
        return fitted(s, batch) + 0.2 * batch.mean((batch.labels * gamma == gamma).to(s.dtype) * s)

    def closure_fill(w, batch):
        """A float that a loss closes over fills masked samples."""
        s = scores(w, batch)
        return fitted(s.masked_fill(s > 0.5, gamma), batch)

    def closure_deciding(w, batch):
        """A float that a loss closes over decides which loss it is."""
        s = scores(w, batch)
        return fitted(s, batch) if gamma > 1 else batch.mean(s.square())

    def closure_everywhere(w, batch):
        """A float that a loss closes over is used in several ways."""
        s = scores(w, batch)
        return fitted(s * gamma + gamma, batch) / gamma + math.exp(-gamma) * batch.mean(s.square())

    return {name: each for name, each in locals().items() if callable(each)}


for _written in _closing_over(1.3, 3).values():
    _loss(quick=_written.__name__ == "closure_power")(_written)


@_loss()
def default_arguments(w, batch, gamma=1.4, whole=2):
    """Numbers as default arguments."""
    return fitted(scores(w, batch) * gamma, batch) + 0.1 * batch.mean(scores(w, batch) ** whole)


# Numbers that stand for something inside of an engine


@_loss(quick=True)
def number_4099(w, batch):
    """The number 4099 as a factor."""
    return fitted(scores(w, batch) * 4099 * 1e-4, batch)


@_loss()
def number_4111(w, batch):
    """The number 4111 as a factor."""
    return fitted(scores(w, batch) * 4111 * 1e-4, batch)


@_loss(quick=True)
def number_8198(w, batch):
    """Twice 4099 as a factor."""
    return fitted(scores(w, batch) * 8198 * 1e-4, batch)


@_loss()
def number_12333(w, batch):
    """Three times 4111, added."""
    return fitted((scores(w, batch) + 12333) * 1e-4, batch)


@_loss()
def quotient_of_4099(w, batch):
    """A division by 4099."""
    return fitted(scores(w, batch) * 1e3 / 4099, batch)


@_loss()
def reciprocal_of_8222(w, batch):
    """The reciprocal of twice 4111 as a factor."""
    return fitted(scores(w, batch) * (1 / 8222) * 5e3, batch)


@_loss()
def threshold_of_4099(w, batch):
    """A comparison with 4099."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.2 * batch.mean((s * 5000 > 4099).to(s.dtype) * s)


@_loss()
def bound_of_4111(w, batch):
    """A bound of 4111."""
    return fitted((scores(w, batch) * 5000).clamp(max=4111) * 2e-4, batch)


@_loss()
def where_4099(w, batch):
    """4099 as a choice of `where`."""
    s = scores(w, batch)
    return fitted(torch.where(s > 0.5, 4099.0, s * 4000) * 1e-4, batch)


@_loss()
def full_of_8198(w, batch):
    """A tensor full of twice 4099."""
    s = scores(w, batch)
    return fitted(s * torch.full_like(s, 8198) * 1e-4, batch)


@_loss()
def large_and_small_numbers(w, batch):
    """Numbers of many sizes as factors."""
    s = scores(w, batch)
    return fitted(s * 1e20 * 1e-20 + s * 65536 / 65536 + s * 3e-300 + (s + 1e6) * 1e-6, batch)


@_loss()
def infinite_bound(w, batch):
    """A bound that is infinite."""
    return fitted(scores(w, batch).clamp(min=-math.inf, max=math.inf), batch)


# What is trained and not used, or used and not trained


@_loss("h", quick=True)
def unused_vector(w, batch):
    """A trained vector that the loss does not read."""
    return fitted(scores(w, batch), batch)


@_loss("D")
def unused_table(w, batch):
    """A trained table that the loss does not read."""
    return fitted(scores(w, batch), batch)


@_loss("b u")
def unused_of_width_1(w, batch):
    """A trained table and vector of one number that the loss does not read."""
    return fitted(scores(w, batch), batch)


@_loss("h", settings={"optimiser": "sgd"})
def unused_vector_sgd(w, batch):
    """The same with plain gradient steps."""
    return fitted(scores(w, batch), batch)


@_loss("h", quick=True)
def stop_gradient(w, batch):
    """A trained vector is read without its gradient."""
    return fitted(dot(w.Q[batch.items], w.p * w.h.detach()), batch)


@_loss("D")
def stop_gradient_of_rows(w, batch):
    """A trained table is read without its gradient."""
    return fitted(dot(w.Q[batch.items] + w.D[batch.items].detach(), w.p), batch)


@_loss("D")
def no_grad(w, batch):
    """Part of a loss is computed under `no_grad`."""
    with torch.no_grad():
        teacher = torch.sigmoid(dot(w.D[batch.items], w.p))
    s = scores(w, batch)
    return fitted(s, batch) + batch.mean((torch.sigmoid(s) - teacher).square())


@_loss()
def self_distillation(w, batch):
    """A score is pulled to what it is without a gradient."""
    s = scores(w, batch)
    return fitted(s, batch) + batch.mean((s - 0.5 * s.detach()).square())


@_loss("h", frozen="h")
def read_but_frozen(w, batch):
    """A vector that is read and not trained."""
    return fitted(dot(w.Q[batch.items], w.p * w.h), batch)


@_loss(frozen="Q")
def table_frozen(w, batch):
    """A table that is read and not trained."""
    return fitted(scores(w, batch), batch)


@_loss(frozen="p")
def only_table_trained(w, batch):
    """A table alone is trained."""
    return fitted(scores(w, batch), batch)


@_loss("h z")
def zero_times_parameter(w, batch):
    """A parameter whose gradient is 0 throughout."""
    return fitted(scores(w, batch), batch) + 0 * w.h.sum((-1, -2)) + 0 * w.z.square().sum((-1, -2))


# Functions, one by one


@_loss(quick=True)
def softmax_of_row(w, batch):
    """Attention over the dimensions of a row."""
    q = w.Q[batch.items]
    return fitted(dot(torch.softmax(q, -1), w.p), batch)


@_loss()
def log_softmax_of_row(w, batch):
    """The logarithm of a softmax over dimensions."""
    q = w.Q[batch.items]
    return fitted(dot(functional.log_softmax(q, dim=-1), w.p), batch)


@_loss()
def softmax_of_vector(w, batch):
    """A softmax of a vector."""
    return fitted(dot(w.Q[batch.items], torch.softmax(w.p, -1) * 4), batch)


@_loss()
def logsumexp_of_row(w, batch):
    """A logsumexp over dimensions."""
    return fitted(torch.logsumexp(w.Q[batch.items] * w.p, -1), batch)


@_loss()
def layer_norm(w, batch):
    """Normalised rows."""
    return fitted(dot(functional.layer_norm(w.Q[batch.items], (4,)), w.p), batch)


@_loss("h")
def layer_norm_with_weight(w, batch):
    """Normalised rows with a trained weight, written out."""
    q = w.Q[batch.items]
    centred = q - q.mean(-1, keepdim=True)
    normal = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    return fitted(dot(normal * w.h, w.p), batch)


@_loss(quick=True)
def slices_of_row(w, batch):
    """The halves of a row are used apart."""
    q = w.Q[batch.items]
    return fitted((q[..., :2] * w.p[..., :2]).sum(-1) - (q[..., 2:] * w.p[..., 2:]).sum(-1), batch)


@_loss()
def step_slices(w, batch):
    """Every second dimension."""
    q = w.Q[batch.items]
    return fitted(dot(q[..., ::2], w.p[..., 1::2]), batch)


@_loss()
def select_of_row(w, batch):
    """Single dimensions, also from behind."""
    q = w.Q[batch.items]
    return fitted(q[..., 0] * 2 + q[..., -1] * q[..., 2] + dot(q, w.p), batch)


@_loss()
def chunk_and_split(w, batch):
    """A row in pieces."""
    first, second = w.Q[batch.items].chunk(2, -1)
    one, rest = w.p.split([1, 3], dim=-1)
    return fitted(dot(first, second) + one.sum(-1) + rest.square().sum(-1), batch)


@_loss()
def unbind_of_row(w, batch):
    """A row as single numbers."""
    a, b, c, d = w.Q[batch.items].unbind(-1)
    return fitted(a * b + c * d + scores(w, batch), batch)


@_loss()
def narrow_and_index_select(w, batch):
    """Dimensions that are picked by number."""
    q = w.Q[batch.items]
    picked = q.index_select(-1, torch.tensor([2, 0, 2], device=q.device))
    return fitted(dot(q, w.p) + q.narrow(-1, 1, 2).sum(-1) + picked.square().sum(-1), batch)


@_loss()
def stack_and_cat(w, batch):
    """Scores side by side, and rows joined."""
    q = w.Q[batch.items]
    s = scores(w, batch)
    both = torch.stack([s, s * 2, batch.labels], -1)
    joined = torch.cat([q, q.square()], -1)
    return fitted(both.sum(-1) + joined.mean(-1), batch)


@_loss()
def cosine_similarity(w, batch):
    """The cosine of row and vector."""
    return fitted(3 * functional.cosine_similarity(w.Q[batch.items], w.p, dim=-1), batch)


@_loss()
def std_of_row(w, batch):
    """The deviation over dimensions."""
    return fitted(scores(w, batch), batch) + batch.mean(w.Q[batch.items].std(-1))


@_loss()
def var_of_row(w, batch):
    """The variance over dimensions, without correction."""
    return fitted(scores(w, batch), batch) + batch.mean(w.Q[batch.items].var(-1, unbiased=False))


def _elementwise() -> dict:
    """Functions of one number, each as a case."""
    f = functional
    return {
        "leaky_relu": lambda x: f.leaky_relu(x, 0.2),
        "elu": f.elu,
        "selu": f.selu,
        "celu": lambda x: f.celu(x, 0.7),
        "gelu": f.gelu,
        "gelu_by_tanh": lambda x: f.gelu(x, approximate="tanh"),
        "silu": f.silu,
        "mish": f.mish,
        "relu6": lambda x: f.relu6(x * 3),
        "hardsigmoid": lambda x: f.hardsigmoid(x * 3),
        "hardswish": lambda x: f.hardswish(x * 3),
        "softsign": f.softsign,
        "tanhshrink": f.tanhshrink,
        "softshrink": lambda x: f.softshrink(x, 0.3),
        "hardshrink": lambda x: f.hardshrink(x, 0.3),
        "threshold": lambda x: f.threshold(x, 0.1, 0.7),
        "logsigmoid": f.logsigmoid,
        "softplus": f.softplus,
        "softplus_beta": lambda x: f.softplus(x, beta=2.5),
        "softplus_threshold": lambda x: f.softplus(x, beta=1.5, threshold=0.5),
        "sin": torch.sin,
        "cos": torch.cos,
        "tan_of_tanh": lambda x: torch.tan(torch.tanh(x)),
        "asin_of_tanh": lambda x: torch.asin(torch.tanh(x) * 0.9),
        "acos_of_tanh": lambda x: torch.acos(torch.tanh(x) * 0.9),
        "atan": torch.atan,
        "sinh": torch.sinh,
        "cosh": torch.cosh,
        "asinh": torch.asinh,
        "exp": torch.exp,
        "exp2": torch.exp2,
        "expm1": torch.expm1,
        "erf": torch.erf,
        "erfc": torch.erfc,
        "log_of_positive": lambda x: torch.log(x.square() + 1),
        "log2_of_positive": lambda x: torch.log2(x.square() + 1),
        "log10_of_positive": lambda x: torch.log10(x.square() + 1),
        "log1p_of_square": lambda x: torch.log1p(x.square()),
        "sqrt_of_positive": lambda x: torch.sqrt(x.square() + 0.5),
        "rsqrt_of_positive": lambda x: torch.rsqrt(x.square() + 0.5),
        "reciprocal_of_positive": lambda x: torch.reciprocal(x.square() + 0.5),
        "logit_of_sigmoid": lambda x: torch.logit(torch.sigmoid(x)),
        "abs": torch.abs,
        "sign_times": lambda x: torch.sign(x) * x,
        "sgn_times": lambda x: torch.sgn(x) * x.square(),
        "heaviside_times": lambda x: torch.heaviside(x.detach(), x.new_tensor(0.5)) * x,
        "positive_and_negative": lambda x: +x - (-x),
        "nan_to_num": torch.nan_to_num,
        "lgamma_of_positive": lambda x: torch.lgamma(x.square() + 1),
        "digamma_of_positive": lambda x: torch.digamma(x.square() + 1),
        "sinc": torch.sinc,
        "i0": torch.special.i0,
        "copysign": lambda x: torch.copysign(x, -x.square()),
        "hypot": lambda x: torch.hypot(x, x + 1),
        "atan2": lambda x: torch.atan2(x, x.square() + 1),
        "logaddexp": lambda x: torch.logaddexp(x, 1 - x),
        "logaddexp2": lambda x: torch.logaddexp2(x, 1 - x),
        "maximum": lambda x: torch.maximum(x, 0.5 - x),
        "minimum": lambda x: torch.minimum(x, 0.5 - x),
        "fmax_and_fmin": lambda x: torch.fmax(x, 0.5 - x) + torch.fmin(x, x.square()),
        "xlogy": lambda x: torch.xlogy(x.square(), x.square() + 0.1),
        "isfinite": lambda x: torch.where(torch.isfinite(x), x, 0.0),
        "nested_where": lambda x: torch.where(x > 0, torch.where(x > 1, x.sqrt(), x), -x),
        "rounded_straight_through": lambda x: x + (x.round() - x).detach(),
        "sigmoid_of_sigmoid": lambda x: torch.sigmoid(torch.sigmoid(torch.tanh(x))),
    }


_DIVERGES = {"nested_where": {"expected": "refused", "text": "diverged|finite"}}
_SOON = {"softplus_beta", "softplus_threshold", "leaky_relu", "gelu", "logit_of_sigmoid", "nested_where"}


def _function_case(name, function):
    def loss(w, batch):
        return fitted(function(scores(w, batch)), batch) + 0.1 * batch.mean(
            function(w.Q[batch.items]).sum(-1)
        )

    loss.__name__, loss.__doc__ = f"function_{name}", f"The function {name}, of scores and of rows."
    _loss(quick=name in _SOON, **_DIVERGES.get(name, {}))(loss)


for _name, _function in _elementwise().items():
    _function_case(_name, _function)


# Losses of torch


@_loss()
def mean_squared_error(w, batch):
    """Squared errors by torch's own loss."""
    return batch.mean(functional.mse_loss(scores(w, batch), batch.labels, reduction="none"))


@_loss()
def robust_errors(w, batch):
    """Absolute, smooth and Huber's errors."""
    s, y = scores(w, batch), batch.labels
    huber = functional.huber_loss(s, y, delta=0.6, reduction="none")
    smooth = functional.smooth_l1_loss(s, y, beta=0.4, reduction="none")
    return batch.mean(huber + smooth + functional.l1_loss(s, y, reduction="none"))


@_loss()
def entropy_of_probabilities(w, batch):
    """Cross-entropy of probabilities."""
    p = torch.sigmoid(scores(w, batch))
    return batch.mean(functional.binary_cross_entropy(p, batch.labels, reduction="none"))


@_loss()
def weighted_entropy(w, batch):
    """Cross-entropy with a weight for each sample and one for positives."""
    s, y = scores(w, batch), batch.labels
    positive = torch.full_like(y, 1.5)
    return batch.mean(
        functional.binary_cross_entropy_with_logits(s, y, weight=y + 1, pos_weight=positive, reduction="none")
    )


@_loss()
def hinge(w, batch):
    """A hinge loss."""
    return batch.mean((1 - (2 * batch.labels - 1) * scores(w, batch)).clamp(min=0))


@_loss()
def soft_margin(w, batch):
    """A soft margin loss."""
    y = 2 * batch.labels - 1
    return batch.mean(functional.soft_margin_loss(scores(w, batch), y, reduction="none"))


@_loss()
def poisson(w, batch):
    """A Poisson loss."""
    return batch.mean(functional.poisson_nll_loss(scores(w, batch), batch.labels, reduction="none"))


@_loss("D")
def divergence_of_rows(w, batch):
    """Kullback and Leibler's divergence of the softmax of two rows."""
    q, d = torch.log_softmax(w.Q[batch.items], -1), torch.softmax(w.D[batch.items], -1)
    return fitted(scores(w, batch), batch) + batch.mean(functional.kl_div(q, d, reduction="none").sum(-1))


# Norms, products, shapes


@_loss(quick=True)
def norms_of_row(w, batch):
    """Norms of order 1, 2 and infinity."""
    q = w.Q[batch.items]
    penalty = q.norm(dim=-1) + q.norm(p=1, dim=-1) + torch.linalg.vector_norm(q, ord=math.inf, dim=-1)
    return fitted(scores(w, batch), batch) + 0.1 * batch.mean(penalty)


@_loss()
def norm_of_order_3(w, batch):
    """A norm of order 3."""
    return fitted(scores(w, batch), batch) + 0.1 * batch.mean(w.Q[batch.items].norm(p=3, dim=-1))


@_loss()
def normalize(w, batch):
    """Rows of length 1."""
    q = functional.normalize(w.Q[batch.items], dim=-1)
    return fitted(3 * dot(q, functional.normalize(w.p, dim=-1)), batch)


@_loss()
def pairwise_distance(w, batch):
    """The distance of row and vector by torch's function."""
    return fitted(functional.pairwise_distance(w.Q[batch.items], w.p.expand_as(w.Q[batch.items])), batch)


@_loss()
def amax_and_amin(w, batch):
    """The largest and smallest number of a row."""
    q = w.Q[batch.items]
    return fitted(q.amax(-1) - q.amin(-1) + dot(q, w.p), batch)


@_loss()
def max_with_place(w, batch):
    """The largest number by `max`, which also says where it is."""
    largest, _ = (w.Q[batch.items] * w.p).max(-1)
    return fitted(largest, batch)


@_loss()
def argmax_of_row(w, batch):
    """Where the largest number of a row is, as a number."""
    q = w.Q[batch.items]
    return fitted(dot(q, w.p) * (1 + q.argmax(-1).to(q.dtype)), batch)


@_loss()
def sort_of_row(w, batch):
    """The dimensions of a row in order."""
    q = w.Q[batch.items].sort(-1).values
    return fitted(dot(q, w.p), batch)


@_loss()
def topk_of_row(w, batch):
    """The two largest numbers of a row."""
    return fitted((w.Q[batch.items] * w.p).topk(2, dim=-1).values.sum(-1), batch)


@_loss()
def median_of_row(w, batch):
    """The middle number of a row."""
    return fitted(scores(w, batch) + w.Q[batch.items].median(-1).values, batch)


@_loss()
def cumsum_of_row(w, batch):
    """Running sums over dimensions."""
    return fitted(dot(w.Q[batch.items].cumsum(-1), w.p), batch)


@_loss()
def prod_of_row(w, batch):
    """The product over dimensions."""
    return fitted(w.Q[batch.items].prod(-1) + scores(w, batch), batch)


@_loss()
def flip_and_roll(w, batch):
    """Dimensions in another order."""
    q = w.Q[batch.items]
    return fitted(dot(q.flip(-1), w.p) + dot(q.roll(1, -1), w.p), batch)


@_loss()
def padded_row(w, batch):
    """A row with zeros at its end."""
    q = functional.pad(w.Q[batch.items], (0, 2))
    return fitted(scores(w, batch), batch) + 0.1 * batch.mean(q.exp().sum(-1))


@_loss("M", quick=True)
def bilinear(w, batch):
    """A product with a matrix."""
    return fitted(dot(w.Q[batch.items] @ w.M, w.p), batch)


@_loss("M N o")
def products_of_matrices(w, batch):
    """Products with matrices of many shapes, one after another."""
    x = torch.relu(w.Q[batch.items] @ w.M) @ w.o
    y = torch.tanh(w.Q[batch.items] @ w.N).sum(-1)
    return fitted(x.squeeze(-1) + y + scores(w, batch), batch)


@_loss("M")
def product_of_vector_and_matrix(w, batch):
    """A vector times a matrix, then a row."""
    return fitted(dot(w.Q[batch.items], w.p @ w.M), batch)


@_loss("M")
def transposed_matrix(w, batch):
    """A matrix transposed over its last two axes."""
    return fitted(
        dot(w.Q[batch.items] @ w.M.transpose(-1, -2), w.p) + dot(w.Q[batch.items] @ w.M.mT, w.p), batch
    )


@_loss("M")
def orthogonal_matrix(w, batch):
    """A penalty that pulls a matrix to be orthogonal."""
    apart = w.M.mT @ w.M - torch.eye(4, device=w.M.device)
    return fitted(scores(w, batch), batch) + 0.1 * apart.square().sum((-1, -2))


@_loss("M")
def diagonal_of_matrix(w, batch):
    """The diagonal of a matrix as weights."""
    weight = w.M.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    return fitted(dot(w.Q[batch.items], w.p * weight), batch)


@_loss("M")
def triangle_of_matrix(w, batch):
    """The upper triangle of a matrix."""
    return fitted(dot(w.Q[batch.items] @ w.M.triu(), w.p), batch)


@_loss()
def einsum_of_two(w, batch):
    """A product over dimensions by `einsum`."""
    return fitted(torch.einsum("...sd,...od->...s", w.Q[batch.items], w.p), batch)


@_loss("M")
def einsum_of_three(w, batch):
    """A bilinear form by `einsum`."""
    return fitted(torch.einsum("...sd,...de,...oe->...s", w.Q[batch.items], w.M, w.p), batch)


@_loss()
def matmul_of_row_and_vector(w, batch):
    """Scores as a product of matrices."""
    return fitted((w.Q[batch.items] @ w.p.mT).squeeze(-1), batch)


@_loss()
def outer_product_of_row(w, batch):
    """The outer product of row and vector."""
    outer = w.Q[batch.items].unsqueeze(-1) * w.p.unsqueeze(-2)
    return fitted(outer.sum((-1, -2)) + outer.square().mean((-1, -2)), batch)


@_loss()
def view_of_row(w, batch):
    """A row as two rows of two."""
    q = w.Q[batch.items]
    pairs = (q * w.p).unflatten(-1, (2, 2))
    return fitted(pairs.prod(-1).sum(-1) + pairs.flatten(-2).sum(-1), batch)


@_loss()
def reshape_of_row(w, batch):
    """Heads of attention by `reshape` over all leading axes."""
    q = w.Q[batch.items]
    heads = (q * w.p).reshape(*q.shape[:-1], 2, 2)
    return fitted((heads.softmax(-1) * heads).sum((-1, -2)), batch)


@_loss()
def expand_and_squeeze(w, batch):
    """A vector as wide as the samples, by `expand_as`."""
    q = w.Q[batch.items]
    x = torch.cat([w.p.expand_as(q), q], -1)
    return fitted(x.square().sum(-1, keepdim=True).squeeze(-1) - 3, batch)


@_loss()
def repeat_of_row(w, batch):
    """A row beside itself, by `repeat_interleave`."""
    return fitted((w.Q[batch.items] * w.p).repeat_interleave(2, -1).cumsum(-1).mean(-1), batch)


@_loss()
def gates_of_a_row(w, batch):
    """A gated linear unit over dimensions."""
    return fitted(functional.glu(w.Q[batch.items] + w.p, -1).sum(-1), batch)


@_loss("h")
def bilinear_by_hand(w, batch):
    """Several ways of weighing a row."""
    q = w.Q[batch.items]
    return fitted((q * w.h).sum(-1) + (q * w.p).mean(-1) + (q - w.p).square().sum(-1).sqrt(), batch)


@_loss()
def linear_by_torch(w, batch):
    """`functional.linear` with a vector."""
    q = w.Q[batch.items] * w.p
    return fitted(functional.linear(q, q.new_ones(1, 4)).squeeze(-1), batch)


@_loss()
def constant_tensors(w, batch):
    """Tensors that are no parameters: ranges, ones, an identity."""
    q = w.Q[batch.items]
    weights = torch.arange(1, 5, device=q.device).to(q.dtype)
    return fitted(dot(q * weights, w.p) / 4 + dot(q, torch.ones(4, device=q.device)), batch)


@_loss()
def constant_table(w, batch):
    """A fixed matrix that a loss makes."""
    q = w.Q[batch.items]
    fixed = torch.linspace(-1, 1, 16, device=q.device, dtype=q.dtype).reshape(4, 4)
    return fitted(dot(q @ fixed, w.p), batch)


# Tables and vectors of one number; other tables


@_loss("b", quick=True)
def item_bias(w, batch):
    """A table one number wide."""
    return fitted(scores(w, batch) + w.b[batch.items].squeeze(-1), batch)


@_loss("b c u")
def biases_of_all_kinds(w, batch):
    """Shared and private tables of one number, and a vector of one."""
    bias = (w.b[batch.items] + w.c[batch.items] * w.u).squeeze(-1)
    return fitted(scores(w, batch) + bias + w.u.squeeze(-1), batch)


@_loss("b")
def bias_penalty(w, batch):
    """A penalty on a table of one number, summed over its axis."""
    b = w.b[batch.items]
    return fitted(scores(w, batch) + b.sum(-1), batch) + 0.1 * batch.mean(
        b.square().mean(-1) + b.norm(dim=-1)
    )


@_loss("b")
def softmax_of_one(w, batch):
    """A softmax over one number is 1."""
    return fitted(scores(w, batch) + torch.softmax(w.b[batch.items], -1).squeeze(-1), batch)


@_loss("b", settings={"d": 1}, quick=True)
def everything_of_width_1(w, batch):
    """Every table and vector has one number."""
    return fitted(scores(w, batch) + w.b[batch.items].squeeze(-1), batch)


@_loss("D E R")
def tables_of_all_locations(w, batch):
    """Shared, private, local and scratch tables together."""
    q, d, e, r = (table[batch.items] for table in (w.Q, w.D, w.E, w.R))
    pull = (q - r).square().sum(-1) + e.square().sum(-1)
    return fitted(dot(q + d, w.p) + e.sum(-1), batch) + 0.1 * batch.mean(pull)


@_loss("P")
def personal_vector(w, batch):
    """A vector that the server keeps for each client."""
    return fitted(dot(w.Q[batch.items], w.p + w.P), batch)


@_loss("h t M")
def shared_beside_tables(w, batch):
    """Shared vectors and matrices together."""
    return fitted(dot(torch.tanh(w.Q[batch.items] @ w.M) * w.h, w.p) + w.t.squeeze(-1), batch)


# What a mini-batch and a client say


@_loss(quick=True)
def what_a_batch_says(w, batch):
    """Occurrences, distinct items and the size of a mini-batch."""
    s = scores(w, batch)
    weight = 1 / batch.occurrences() + batch.distinct() * 0.5 + 1 / batch.size
    return batch.mean(entropies(s, batch) * weight)


@_loss(quick=True)
def what_a_client_says(w, batch):
    """Interactions, and whether a client took part."""
    s = scores(w, batch)
    return fitted(s * (1 + 1 / w.interactions.squeeze(-1)) + 0.5 * w.held.squeeze(-1), batch)


@_loss()
def interactions_beside_vector(w, batch):
    """Interactions meet a vector."""
    return fitted(dot(w.Q[batch.items], w.p / (1 + w.interactions) + w.held), batch)


@_loss(quick=True)
def training_sum(w, batch):
    """The sum of the rows of training items."""
    profile = w.Q.training_sum() / w.interactions
    return fitted(dot(w.Q[batch.items], profile + w.p), batch)


@_loss("b")
def training_sum_of_width_1(w, batch):
    """The sum of training items over a table of one number."""
    return fitted(scores(w, batch) + w.b.training_sum().squeeze(-1) + w.b[batch.items].sum(-1), batch)


@_loss()
def mean_of_means(w, batch):
    """Several means, multiplied and divided."""
    s = scores(w, batch)
    first, second = batch.mean(s.square()), batch.mean(s.sigmoid())
    return fitted(s, batch) + 0.1 * first * second / (1 + first)


@_loss()
def function_of_mean(w, batch):
    """A function of a mean of samples."""
    return torch.log(batch.mean(torch.exp(entropies(scores(w, batch), batch))))


@_loss(quick=True)
def centred_by_mean(w, batch):
    """Scores minus their mean, which has to meet them again."""
    s = scores(w, batch)
    return fitted(s - batch.mean(s).unsqueeze(-1), batch)


@_loss(quick=True)
def size_times_mean(w, batch):
    """The size of a mini-batch times a mean over it, as samples' values."""
    s = scores(w, batch)
    return batch.mean(entropies(s, batch) * batch.size) / 4


@_loss()
def mean_over_positives(w, batch):
    """A mean over positives alone: the quotient of two means."""
    s = scores(w, batch)
    return batch.mean(functional.softplus(-s) * batch.labels) / (batch.mean(batch.labels) + 1e-9) + fitted(
        s, batch
    )


@_loss()
def variance_of_samples(w, batch):
    """The variance of scores, by two means."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.1 * (batch.mean(s.square()) - batch.mean(s).square())


# Reductions over samples


@_loss(needs=("sum",), quick=True)
def sum_of_samples(w, batch):
    """The sum of samples by `batch.sum`."""
    return batch.sum(entropies(scores(w, batch), batch)) / 4


@_loss(needs=("sum",))
def sum_of_positives(w, batch):
    """A quotient of two sums."""
    s = scores(w, batch)
    return batch.sum(functional.softplus(-s) * batch.labels) / (batch.sum(batch.labels) + 1) + fitted(
        s, batch
    )


@_loss(needs=("logsumexp",), quick=True)
def logsumexp_of_samples(w, batch):
    """The logsumexp of samples by `batch.logsumexp`."""
    s = scores(w, batch)
    return batch.logsumexp(s) + fitted(s, batch)


@_loss(needs=("softmax",), quick=True)
def softmax_of_samples(w, batch):
    """The softmax over samples by `batch.softmax`."""
    s = scores(w, batch)
    return batch.mean(batch.softmax(s) * entropies(s, batch)) + fitted(s, batch)


@_loss(needs=("softmax", "sum"))
def attention_over_samples(w, batch):
    """A client's samples weighted by attention, then summed."""
    s = scores(w, batch)
    return batch.sum(batch.softmax(s / 2) * entropies(s, batch))


@_loss(needs=("logsumexp", "sum"))
def infonce(w, batch):
    """Positives against all samples of the mini-batch."""
    s = scores(w, batch)
    return batch.logsumexp(s) - batch.sum(s * batch.labels) / (batch.sum(batch.labels) + 1)


@_loss(needs=("sum",))
def sum_and_size(w, batch):
    """A sum divided by the size is a mean."""
    s = scores(w, batch)
    return (batch.sum(entropies(s, batch)) / batch.size.squeeze(-1)) + 0 * batch.mean(s)


@_loss()
def distinct_rows_summed(w, batch):
    """A sum over samples of what is 0 on all of a client's filling."""
    rows = w.Q[batch.items].square().sum(-1) * batch.distinct()
    return fitted(scores(w, batch), batch) + 0.01 * rows.sum(-1)


@_loss()
def distinct_pairs(w, batch):
    """Distances of every two distinct items of a mini-batch."""
    q, first = w.Q[batch.items], batch.distinct()
    distance = (q.unsqueeze(-2) - q.unsqueeze(-3)).square().sum(-1)
    pairs = first.unsqueeze(-1) * first.unsqueeze(-2)
    return fitted(scores(w, batch), batch) + 0.01 * (distance * pairs).sum((-1, -2))


# Whole tables


@_loss(quick=True)
def whole_penalty(w, batch):
    """A penalty on every row of a table."""
    return fitted(scores(w, batch), batch) + 0.01 * w.Q.whole().square().sum((-1, -2))


@_loss("D")
def whole_difference(w, batch):
    """The distance of two whole tables."""
    return fitted(scores(w, batch), batch) + 0.01 * (w.Q.whole() - w.D.whole()).square().mean((-1, -2))


@_loss("b")
def whole_of_width_1(w, batch):
    """A penalty on every row of a table of one number."""
    return fitted(scores(w, batch) + w.b[batch.items].sum(-1), batch) + 0.1 * w.b.whole().square().sum(
        (-1, -2)
    )


@_loss()
def whole_centre(w, batch):
    """The mean of all rows."""
    centre = w.Q.whole().mean(-2, keepdim=True)
    return fitted(dot(w.Q[batch.items] - centre, w.p), batch)


@_loss()
def whole_norm(w, batch):
    """The (not squared) norm of a table."""
    return fitted(scores(w, batch), batch) + 0.01 * w.Q.whole().square().sum((-1, -2)).sqrt()


@_loss()
def full_softmax(w, batch):
    """A softmax over the whole catalogue."""
    every = (w.Q.whole() * w.p).sum(-1)
    return batch.mean(every.logsumexp(-1, keepdim=True) - scores(w, batch) * batch.labels)


@_loss()
def whole_row_lengths(w, batch):
    """The lengths of all rows are pulled to 1."""
    lengths = (w.Q.whole().square().sum(-1) + 1e-6).sqrt()
    return fitted(scores(w, batch), batch) + 0.01 * (lengths - 1).square().sum(-1)


@_loss()
def whole_products(w, batch):
    """The products of all dimensions of a table."""
    products = w.Q.whole().mT @ w.Q.whole()
    return fitted(scores(w, batch), batch) + 0.001 * products.square().sum((-1, -2))


@_loss()
def whole_largest(w, batch):
    """The largest number of a table."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q.whole().abs().amax((-1, -2))


@_loss()
def whole_mean_of_all(w, batch):
    """The mean of all numbers of a table, and of its absolute numbers."""
    whole = w.Q.whole()
    return (
        fitted(scores(w, batch), batch)
        + 0.1 * whole.mean((-1, -2)).square()
        + 0.1 * whole.abs().mean((-1, -2))
    )


@_loss("E")
def whole_of_untrained_rows(w, batch):
    """A table of which only the whole is read."""
    return fitted(scores(w, batch), batch) + 0.1 * w.E.whole().square().mean((-1, -2))


# Kinks, and gradients that are no numbers


@_loss("z", quick=True)
def kink_at_zero(w, batch):
    """Functions with a kink, started at it: relu, abs, maximum, a bound."""
    z = w.z
    kinked = torch.relu(z) + z.abs() + torch.maximum(z, -z) + z.clamp(min=0) + z.sign()
    return fitted(dot(w.Q[batch.items], w.p + kinked), batch)


@_loss("z")
def leaky_kink_at_zero(w, batch):
    """The slope of leaky functions at 0."""
    z = functional.leaky_relu(w.z, 0.3) + functional.elu(w.z) + functional.hardtanh(w.z, 0.0, 1.0)
    return fitted(dot(w.Q[batch.items], w.p + z), batch)


@_loss("z")
def ties_of_largest(w, batch):
    """The largest of equal numbers: `amax` shares its gradient."""
    return fitted(scores(w, batch) + w.z.amax(-1) - w.z.amin(-1), batch)


@_loss("z")
def norm_of_zero(w, batch):
    """The norm of a vector of zeros has the gradient 0."""
    return fitted(scores(w, batch), batch) + 0.1 * w.z.norm(dim=-1).squeeze(-1)


@_loss("z")
def normalised_zero(w, batch):
    """A vector of zeros, normalised."""
    return fitted(dot(w.Q[batch.items], w.p + functional.normalize(w.z, dim=-1)), batch)


@_loss("z", expected="refused", text="diverged|finite", by_check=True)
def root_of_zero(w, batch):
    """The slope of a root at 0 is infinite: training has diverged."""
    return fitted(scores(w, batch), batch) + (w.z.square().sum(-1).sqrt() * w.z.sum(-1)).squeeze(-1)


@_loss("z", expected="refused", text="diverged|finite")
def logarithm_of_zero(w, batch):
    """A loss that is infinite."""
    return fitted(scores(w, batch), batch) + w.z.square().sum((-1, -2)).log()


@_loss("z", expected="refused", text="diverged|finite", by_check=True)
def hidden_nan_gradient(w, batch):
    """A branch that is not taken makes the gradient no number, as 0 times infinity does."""
    z = w.z.square().sum(-1).squeeze(-1)
    return fitted(scores(w, batch), batch) + torch.where(z > 0, z.sqrt(), z)


@_loss("z", expected="refused", text="diverged|finite", by_check=True)
def infinity_minus_infinity(w, batch):
    """A gradient that is infinity minus infinity."""
    root = (w.z.square().sum((-1, -2))).sqrt()
    return fitted(scores(w, batch), batch) + root * 2 - root


@_loss(expected="refused", text="diverged|finite")
def overflow(w, batch):
    """A loss that overflows."""
    return fitted(scores(w, batch), batch) + batch.mean(torch.exp(scores(w, batch) ** 2 * 1e6))


@_loss()
def large_scores(w, batch):
    """Scores of which naive formulas overflow."""
    s = scores(w, batch) * 500
    return (
        fitted(s, batch) / 500
        + batch.mean(torch.logaddexp(s, -s)) / 500
        + batch.mean(functional.softplus(s)) / 500
    )


# Arithmetic in place


@_loss()
def added_in_place(w, batch):
    """`x += y` of a tensor that the loss has made."""
    s = scores(w, batch)
    s += batch.labels * 0.3
    s *= 0.9
    return fitted(s, batch)


@_loss()
def filled_in_place(w, batch):
    """`masked_fill_` and `clamp_` of a tensor that the loss has made."""
    s = scores(w, batch) * 1.0
    s.masked_fill_(batch.labels == 1, 0.5).clamp_(min=-0.7)
    return fitted(s + scores(w, batch), batch)


@_loss()
def item_set(w, batch):
    """One dimension of a copy is set."""
    q = w.Q[batch.items].clone()
    q[..., 0] = 0.0
    return fitted(dot(q, w.p), batch)


@_loss()
def accumulated(w, batch):
    """A sum over dimensions in a Python loop."""
    q = w.Q[batch.items]
    total = torch.zeros_like(q[..., 0])
    for place in range(4):
        total = total + q[..., place] * w.p[..., place]
    return fitted(total, batch)


# Gradients that are zero but for rounding


@_loss(needs=("softmax",), quick=True)
def mean_of_softmax(w, batch):
    """The mean of a softmax is one over the samples, whatever the scores."""
    return fitted(scores(w, batch), batch) + batch.mean(batch.softmax(scores(w, batch)))


@_loss("u", quick=True, unsteady=True)
def variance_without_centre(w, batch):
    """The variance of a row does not go by what is added to all of it."""
    return fitted(scores(w, batch), batch) + batch.mean((w.Q[batch.items] + w.u).var(-1, unbiased=False))


@_loss("b c")
def cosine_of_one_number(w, batch):
    """The cosine of rows of one number is 1 or -1."""
    cosine = functional.cosine_similarity(w.b[batch.items] + 2, w.c[batch.items] + 2, dim=-1)
    return fitted(scores(w, batch) + cosine, batch)


# Programming


@_loss()
def nested_functions(w, batch):
    """Functions inside of a loss, and a lambda."""

    def inner(x: Tensor) -> Tensor:
        return (lambda y: y.sigmoid() * 2)(x) - 1

    return fitted(inner(scores(w, batch)), batch)


class _Doubling(torch.autograd.Function):
    @staticmethod
    def forward(_ctx, x):
        return x * 2

    @staticmethod
    def backward(_ctx, slope):
        return slope * 0.5


@_loss()
def custom_gradient(w, batch):
    """A function with a gradient of its own."""
    return fitted(_Doubling.apply(scores(w, batch)), batch)


@_loss()
def reversed_gradient(w, batch):
    """A gradient that a hook reverses."""
    s = scores(w, batch)
    turned = s * 1.0
    if turned.requires_grad:
        turned.register_hook(lambda slope: -0.3 * slope)
    return fitted(s + turned, batch)


@_loss(expected="either", text="batch.sum")
def gradient_penalty(w, batch):
    """A penalty on a gradient, by a gradient of gradients."""
    s = scores(w, batch)
    slopes = torch.sigmoid(s) - batch.labels
    (slope,) = torch.autograd.grad(entropies(s, batch).sum(), s, create_graph=True)
    return fitted(s, batch) + 0.1 * batch.mean(slope.square() + slopes.square())


@_loss()
def many_terms(w, batch):
    """A loss of many terms of the same rows."""
    q, s = w.Q[batch.items], scores(w, batch)
    terms = [entropies(s * (1 + k / 7), batch) + q.square().sum(-1) * k / 50 for k in range(9)]
    return batch.mean(sum(terms) / 9)


@_loss()
def mean_entropy_twice(w, batch):
    """The same mean entropy twice, and a weight that is 0."""
    return fitted(scores(w, batch), batch) + fitted(scores(w, batch), batch) * 0.0 + 0.0


@_loss(settings={"batch_size": 1})
def batches_of_one(w, batch):
    """Mini-batches of one sample."""
    s = scores(w, batch)
    return fitted(s - batch.mean(s).unsqueeze(-1) * 0.5, batch) / batch.size.squeeze(-1)


@_loss(settings={"batch_size": 1_000_000})
def batches_of_a_million(w, batch):
    """One mini-batch that is larger than any client's samples."""
    s = scores(w, batch)
    return fitted(s - batch.mean(s).unsqueeze(-1) * 0.5, batch) / batch.size.squeeze(-1)


@_loss(settings={"batch_size": 3, "d": 3})
def batches_as_wide_as_rows(w, batch):
    """As many samples as dimensions."""
    q = w.Q[batch.items]
    return fitted(dot(q.softmax(-1), w.p) + q.sum(-1), batch)
