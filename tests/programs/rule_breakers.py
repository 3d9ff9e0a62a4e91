"""Losses that break a rule: all engines refuse them alike, or train them to the numbers of the loop."""

import torch
from torch.nn import functional

from fedrec.federation.model import dot
from tests.programs.cases import Corpus
from tests.programs.losses import entropies, fitted, scores

RULE_BREAKERS = Corpus()
_loss = RULE_BREAKERS.loss
_ITEMS = r"batch\.items"
_SAMPLES = r"batch\.(mean|sum|logsumexp|softmax)"
_DRAWS = "random|draw"


# Whole tables, of which a loss knows no sums


@_loss(expected="refused", text="squared_norm", quick=True)
def squared_norm_in_loss(w, batch):
    """The squared norm of a whole table is for `derived`."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q.squared_norm().squeeze()


@_loss("D", expected="refused", text="squared_norm")
def squared_norm_of_other(w, batch):
    """The squared norm of a table that is not trained."""
    return (
        fitted(scores(w, batch), batch) * (1 + w.D.squared_norm().squeeze(-1).squeeze(-1))
        + w.D[batch.items].sum(-1).mean() * 0
    )


@_loss(expected="refused", text="row_sum", quick=True)
def row_sum_in_loss(w, batch):
    """The sum of all rows is for `derived`."""
    return fitted(dot(w.Q[batch.items] - w.Q.row_sum() / 30, w.p), batch)


# Items as numbers


@_loss(items=400, expected="refused", text=_ITEMS, quick=True)
def weight_by_item(w, batch):
    """A weight for each item, as in inverse propensity scoring."""
    propensity = torch.linspace(0.1, 1.0, 400, device=batch.labels.device)
    return batch.mean(entropies(scores(w, batch), batch) / propensity[batch.items])


@_loss(expected="refused", text=_ITEMS)
def weight_by_item_of_few(w, batch):
    """A weight for each item, of a catalogue smaller than a made mini-batch."""
    propensity = torch.linspace(0.1, 1.0, 30, device=batch.labels.device)
    return batch.mean(entropies(scores(w, batch), batch) / propensity[batch.items])


@_loss(items=400, expected="refused", text=_ITEMS)
def weight_by_gather(w, batch):
    """The same by `gather`."""
    propensity = torch.linspace(0.1, 1.0, 400, device=batch.labels.device)
    return batch.mean(entropies(scores(w, batch), batch) / propensity.gather(0, batch.items))


@_loss(items=400, expected="refused", text=_ITEMS)
def weight_by_index_select(w, batch):
    """The same by `index_select`."""
    propensity = torch.linspace(0.1, 1.0, 400, device=batch.labels.device)
    return batch.mean(entropies(scores(w, batch), batch) / torch.index_select(propensity, 0, batch.items))


@_loss(items=400, expected="refused", text=_ITEMS)
def embedding_of_items(w, batch):
    """Rows of a fixed table by torch's own function."""
    fixed = torch.linspace(-1, 1, 1600, device=batch.labels.device).reshape(400, 4)
    return fitted(dot(functional.embedding(batch.items, fixed), w.p) + scores(w, batch), batch)


@_loss(items=400, expected="refused", text="batch.items|rows|items", quick=True)
def rows_of_other_items(w, batch):
    """The rows of the items that follow."""
    return fitted(dot(w.Q[(batch.items + 1) % 400], w.p), batch)


@_loss(items=400, expected="refused", text="batch.items|rows|items")
def rows_of_a_range(w, batch):
    """The rows of the first items."""
    first = w.Q[torch.arange(20, device=batch.labels.device)].square().sum((-1, -2))
    return fitted(scores(w, batch), batch) + 0.1 * first


@_loss(items=400, expected="refused", text="batch.items|rows|items")
def rows_of_a_list(w, batch):
    """The rows of a list of items."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q[[0, 3, 7]].square().sum((-1, -2))


@_loss(items=400, expected="refused", text="batch.items|rows|items")
def rows_of_a_number(w, batch):
    """The row of one item."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q[5].square().sum()


@_loss(items=400, expected="refused", text="batch.items|rows|items")
def rows_of_a_slice(w, batch):
    """The rows of a slice of the catalogue."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q[:10].square().sum((-1, -2))


@_loss(expected="refused", text=_ITEMS)
def parity_of_items(w, batch):
    """Even items are weighted by another number."""
    s = scores(w, batch)
    return batch.mean(entropies(s, batch) * torch.where(batch.items % 2 == 0, 1.0, 0.5))


@_loss(expected="refused", text=_ITEMS)
def items_compared(w, batch):
    """Items compared with a number."""
    s = scores(w, batch)
    return batch.mean(entropies(s, batch) * (batch.items < 10).to(s.dtype))


@_loss(expected="refused", text=_ITEMS)
def items_as_numbers(w, batch):
    """Items as numbers."""
    s = scores(w, batch)
    return batch.mean(entropies(s, batch) * (1 + batch.items.to(s.dtype) / 30))


@_loss(expected="refused", text=_ITEMS)
def items_times_scores(w, batch):
    """Scores times items."""
    return batch.mean(scores(w, batch) * batch.items / 30)


@_loss(expected="refused", text=_ITEMS)
def items_negated(w, batch):
    """An operator on items alone."""
    return batch.mean(scores(w, batch) + (-batch.items) * 0.01)


@_loss(expected="refused", text=_ITEMS)
def items_one_hot(w, batch):
    """Items as vectors of zeros and a one."""
    hot = functional.one_hot(batch.items, 400).to(batch.labels.dtype)
    return batch.mean(scores(w, batch) * (1 + hot[..., 3]))


@_loss(expected="refused", text=_ITEMS)
def items_unique(w, batch):
    """The distinct items by `unique`."""
    return fitted(scores(w, batch), batch) * batch.items.unique().numel()


@_loss(expected="refused", text=_ITEMS)
def items_counted(w, batch):
    """How often an item occurs, by a comparison of all with all."""
    s = scores(w, batch)
    same = (batch.items.unsqueeze(-1) == batch.items.unsqueeze(-2)).to(s.dtype).sum(-1)
    return batch.mean(entropies(s, batch) / same)


@_loss(expected="refused", text=_ITEMS)
def items_in_order(w, batch):
    """The samples in the order of their items."""
    return fitted(dot(w.Q[batch.items.sort().values], w.p), batch)


@_loss(expected="refused", text=_ITEMS)
def rows_of_first_samples(w, batch):
    """The rows of a mini-batch's first sample."""
    return fitted(dot(w.Q[batch.items] - w.Q[batch.items[..., :1]], w.p), batch)


@_loss(expected="refused", text=_ITEMS)
def rows_of_turned_samples(w, batch):
    """The rows of a mini-batch in another order."""
    return fitted(dot(w.Q[batch.items], w.Q[batch.items.flip(-1)]) + scores(w, batch), batch)


@_loss(expected="refused", text=_ITEMS)
def items_listed(w, batch):
    """Items as a list of Python."""
    return fitted(scores(w, batch), batch) * (1 + len(batch.items.tolist()) / 10)


@_loss(expected="refused", text=_ITEMS)
def number_of_items(w, batch):
    """The length of the mini-batch by its items."""
    return fitted(scores(w, batch), batch) * len(batch.items) / 4


@_loss(expected="either", text=_ITEMS)
def cloned_items(w, batch):
    """The rows of a copy of the mini-batch's items."""
    return fitted(dot(w.Q[batch.items.clone()], w.p), batch)


@_loss(expected="refused", text=_ITEMS)
def positives_alone(w, batch):
    """The rows of positives alone, picked by a mask."""
    q = w.Q[batch.items[batch.labels > 0]]
    return functional.softplus(-dot(q, w.p)).mean()


@_loss(expected="refused", text="batch.items|rows|items|index")
def rows_by_a_mask(w, batch):
    """The rows of a mask of samples."""
    return fitted(scores(w, batch), batch) + w.Q[batch.labels > 0].sum() * 0.01


# Reductions over the axis of samples


@_loss(expected="refused", text=_SAMPLES, quick=True)
def mean_over_samples(w, batch):
    """`.mean(-1)` in the place of `batch.mean`."""
    return entropies(scores(w, batch), batch).mean(-1)


@_loss(expected="refused", text=_SAMPLES)
def mean_of_everything(w, batch):
    """`.mean()` in the place of `batch.mean`."""
    return entropies(scores(w, batch), batch).mean()


@_loss(expected="refused", text=_SAMPLES)
def mean_by_torch(w, batch):
    """The mean that torch's own loss makes."""
    return functional.binary_cross_entropy_with_logits(scores(w, batch), batch.labels)


@_loss(expected="refused", text=_SAMPLES)
def mean_squares_by_torch(w, batch):
    """The mean of squares that torch's own loss makes."""
    return functional.mse_loss(scores(w, batch), batch.labels)


@_loss(expected="refused", text=_SAMPLES, quick=True)
def sum_over_samples(w, batch):
    """`.sum(-1)` over samples."""
    return entropies(scores(w, batch), batch).sum(-1) / 4


@_loss(expected="refused", text=_SAMPLES)
def sum_of_everything(w, batch):
    """`.sum()` over samples."""
    return entropies(scores(w, batch), batch).sum() / 4


@_loss(expected="refused", text=_SAMPLES)
def sum_of_rows(w, batch):
    """The sum of the rows of a mini-batch."""
    return fitted(dot(w.Q[batch.items].sum(-2, keepdim=True), w.p) + scores(w, batch), batch)


@_loss(expected="refused", text=_SAMPLES)
def norm_over_samples(w, batch):
    """The norm of all rows of a mini-batch."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q[batch.items].norm()


@_loss(expected="refused", text=_SAMPLES)
def logsumexp_over_samples(w, batch):
    """`logsumexp` over samples."""
    s = scores(w, batch)
    return fitted(s, batch) + torch.logsumexp(s, -1)


@_loss(expected="refused", text=_SAMPLES)
def softmax_over_samples(w, batch):
    """`softmax` over samples."""
    s = scores(w, batch)
    return batch.mean(torch.softmax(s, -1) * entropies(s, batch)) + fitted(s, batch)


@_loss(expected="refused", text=_SAMPLES)
def log_softmax_over_samples(w, batch):
    """`log_softmax` over samples."""
    s = scores(w, batch)
    return -batch.mean(functional.log_softmax(s, -1) * batch.labels)


@_loss(expected="refused", text=_SAMPLES)
def infonce_by_hand(w, batch):
    """Positives against all samples of the mini-batch, without `batch`."""
    s = scores(w, batch)
    return torch.logsumexp(s, -1) - batch.mean(s * batch.labels)


@_loss(expected="refused", text=_SAMPLES)
def infonce_of_rows(w, batch):
    """Rows of a mini-batch against each other."""
    q = functional.normalize(w.Q[batch.items], dim=-1)
    likeness = q @ q.transpose(-1, -2) / 0.2
    own = likeness.diagonal(dim1=-2, dim2=-1)
    return fitted(scores(w, batch), batch) + batch.mean(likeness.logsumexp(-1) - own)


@_loss(expected="refused", text="samples|batch")
def largest_of_samples(w, batch):
    """The largest score of a mini-batch."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.1 * s.amax(-1)


@_loss(expected="refused", text="samples|batch")
def smallest_of_samples(w, batch):
    """The smallest score of a mini-batch."""
    s = scores(w, batch)
    return fitted(s, batch) - 0.1 * s.amin(-1)


@_loss(expected="refused", text="samples|batch")
def std_over_samples(w, batch):
    """The deviation of scores over samples."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.1 * s.std(-1, unbiased=False)


@_loss(expected="refused", text="samples|batch")
def std_of_rows(w, batch):
    """The deviation of each dimension over samples, as in VICReg."""
    q = w.Q[batch.items]
    return fitted(scores(w, batch), batch) + 0.1 * q.var(-2, unbiased=False).sum(-1)


@_loss(expected="refused", text="samples|batch")
def median_over_samples(w, batch):
    """The middle score of a mini-batch."""
    s = scores(w, batch)
    return fitted(s - s.median(-1, keepdim=True).values, batch)


@_loss(expected="refused", text="samples|batch")
def product_over_samples(w, batch):
    """The product of samples."""
    s = scores(w, batch)
    return fitted(s, batch) - torch.sigmoid(s).prod(-1)


@_loss(expected="refused", text="samples|batch")
def sort_over_samples(w, batch):
    """Samples in the order of their scores."""
    s = scores(w, batch).sort(-1).values
    return fitted(s, batch)


@_loss(expected="refused", text="samples|batch")
def cumsum_over_samples(w, batch):
    """Running sums over samples."""
    return fitted(scores(w, batch).cumsum(-1), batch)


@_loss(expected="refused", text="samples|batch")
def hardest_samples(w, batch):
    """The two samples of the largest loss."""
    return entropies(scores(w, batch), batch).topk(1, -1).values.sum(-1)


@_loss(expected="refused", text="samples|batch")
def turned_samples(w, batch):
    """Each sample beside the one from the other end."""
    s = scores(w, batch)
    return batch.mean(functional.softplus(s - s.flip(-1)))


@_loss(expected="refused", text="samples|batch")
def rolled_samples(w, batch):
    """Each sample beside the one before it."""
    s = scores(w, batch)
    return batch.mean(functional.softplus(s - s.roll(1, -1)))


@_loss(expected="refused", text="samples|batch")
def first_sample(w, batch):
    """The first sample is taken out."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.1 * s[..., 0].square()


@_loss(expected="refused", text="samples|batch")
def sliced_samples(w, batch):
    """All samples but the first."""
    s = scores(w, batch)
    return fitted(s, batch) + 0.1 * batch.mean((s[..., 1:] - s[..., :-1]).square())


@_loss(expected="refused", text="samples|batch")
def indexed_by_zero(w, batch):
    """`s[0]`, which is a sample in the loop."""
    s = scores(w, batch)
    return fitted(s - s[0], batch)


@_loss(expected="refused", text="samples|batch")
def positives_by_mask(w, batch):
    """Samples picked by a mask."""
    s = scores(w, batch)
    return functional.softplus(-s[batch.labels > 0]).mean()


@_loss(expected="refused", text="samples|batch")
def products_over_samples(w, batch):
    """The products of dimensions over the samples of a mini-batch, as in Barlow Twins."""
    q = w.Q[batch.items]
    products = q.transpose(-1, -2) @ q
    return fitted(scores(w, batch), batch) + 0.001 * products.square().sum((-1, -2))


@_loss(expected="refused", text="samples|batch")
def einsum_over_samples(w, batch):
    """A sum over samples inside of `einsum`."""
    q = w.Q[batch.items]
    return fitted(scores(w, batch), batch) + 0.001 * torch.einsum("...sd,...sd->...", q, q)


@_loss(expected="refused", text="samples|batch")
def distances_of_samples(w, batch):
    """Distances of every two samples, filling and all."""
    q = w.Q[batch.items]
    distance = (q.unsqueeze(-2) - q.unsqueeze(-3)).square().sum(-1)
    return fitted(scores(w, batch), batch) + 0.01 * distance.mean((-1, -2))


@_loss(expected="refused", text="samples|batch")
def cdist_of_samples(w, batch):
    """Distances of every two samples by `cdist`."""
    q = w.Q[batch.items]
    return fitted(scores(w, batch), batch) + 0.01 * torch.cdist(q, q).sum((-1, -2))


@_loss(expected="refused", text="samples|batch")
def pairs_of_samples(w, batch):
    """Every positive against every negative of a mini-batch (BPR)."""
    s, y = scores(w, batch), batch.labels
    pair = functional.softplus(s.unsqueeze(-2) - s.unsqueeze(-1)) * y.unsqueeze(-1) * (1 - y).unsqueeze(-2)
    return pair.sum((-1, -2)) / 4


@_loss(expected="refused", text="samples|batch")
def matmul_over_samples(w, batch):
    """Labels times rows, summed over samples."""
    profile = batch.labels.unsqueeze(-2) @ w.Q[batch.items]
    return fitted(dot(w.Q[batch.items], profile), batch)


@_loss(expected="refused", text="samples|batch")
def count_of_positives(w, batch):
    """A mean over positives by sums of labels."""
    s = scores(w, batch)
    return (functional.softplus(-s) * batch.labels).sum(-1) / (batch.labels.sum(-1) + 1)


@_loss(expected="refused", text="samples|batch")
def batch_norm(w, batch):
    """Scores normalised over samples by torch's function."""
    s = scores(w, batch).unsqueeze(-1)
    return fitted(functional.batch_norm(s, None, None, training=True).squeeze(-1), batch)


@_loss(expected="refused", text="samples|batch")
def convolution_over_samples(w, batch):
    """A convolution over samples."""
    s = scores(w, batch)
    kernel = s.new_ones(1, 1, 3) / 3
    return fitted(functional.conv1d(s.unsqueeze(0), kernel, padding=1).squeeze(0), batch)


# Shapes and values as numbers


@_loss(expected="either", text="shape|size|samples|batch", by_check=True)
def shape_as_factor(w, batch):
    """The number of samples by a shape, as a factor."""
    s = scores(w, batch)
    return fitted(s, batch) * s.shape[-1] / 4


@_loss(expected="either", text="shape|size|samples|batch", by_check=True)
def numel_as_divisor(w, batch):
    """The number of samples by `numel`, as a divisor."""
    s = scores(w, batch)
    return fitted(s, batch) * 4 / s.numel()


@_loss(expected="either", text="shape|size|samples|batch", by_check=True)
def length_of_labels(w, batch):
    """The number of samples by `len`."""
    return fitted(scores(w, batch), batch) * len(batch.labels) / 4


@_loss(expected="either", text="shape|size|samples|batch", by_check=True)
def if_on_shape(w, batch):
    """Another loss for short mini-batches."""
    s = scores(w, batch)
    return fitted(s, batch) if s.shape[-1] > 3 else 2 * batch.mean(s.square())


@_loss(expected="either", text="value|if|number", by_check=True)
def if_on_value(w, batch):
    """Another loss where scores are high."""
    s = scores(w, batch)
    return fitted(s, batch) if batch.mean(s).sum() > 0 else 2 * batch.mean(s.square())


@_loss(expected="either", text="value|if|number", by_check=True)
def if_on_client(w, batch):
    """Another loss for clients of few interactions."""
    s = scores(w, batch)
    return fitted(s, batch) if float(w.interactions.sum()) > 4 else 2 * batch.mean(s.square())


@_loss(expected="either", text="value|number|item", by_check=True)
def value_as_factor(w, batch):
    """A value of the model as a number of Python."""
    s = scores(w, batch)
    return fitted(s, batch) * (1 + abs(batch.mean(s).sum().item()))


@_loss("t", expected="either", text="value|number|item", by_check=True)
def parameter_as_number(w, batch):
    """A parameter as a number of Python, in an exponent."""
    return batch.mean(torch.sigmoid(scores(w, batch)) ** float(w.t.detach().sum()))


@_loss(expected="either", text="value|number|list", by_check=True)
def list_of_values(w, batch):
    """Values as a list of Python."""
    s = scores(w, batch)
    return fitted(s, batch) * (1 + len([each for each in s.detach().flatten().tolist() if each > 0]))


@_loss(expected="either", text="value|number|numpy", by_check=True)
def through_numpy(w, batch):
    """Labels by way of numpy."""
    s = scores(w, batch)
    labels = torch.from_numpy(batch.labels.cpu().numpy().copy()).to(s.device)
    return batch.mean(functional.softplus(s) - labels * s)


@_loss(expected="either", text="value|number|loop", by_check=True)
def loop_over_samples(w, batch):
    """A Python loop over samples."""
    s = scores(w, batch)
    total = s[..., 0] * 0
    for place in range(s.shape[-1]):
        total = total + functional.softplus(s[..., place] * (1 - 2 * batch.labels[..., place]))
    return total / s.shape[-1]


class _Counting:
    """How often a loss was computed, which is another number in each engine."""

    calls = 0


@_loss(expected="either", text="", by_check=True)
def counted_calls(w, batch):
    """A loss that depends on how often it was computed."""
    _Counting.calls += 1
    return fitted(scores(w, batch), batch) * (1 + _Counting.calls % 3)


# Random numbers


@_loss(expected="refused", text=_DRAWS, quick=True)
def dropout(w, batch):
    """Dropout of dimensions."""
    return fitted(dot(functional.dropout(w.Q[batch.items], 0.3), w.p), batch)


@_loss(expected="refused", text=_DRAWS)
def noise_like(w, batch):
    """Normal noise on rows."""
    q = w.Q[batch.items]
    return fitted(dot(q + 0.1 * torch.randn_like(q), w.p), batch)


@_loss(expected="refused", text=_DRAWS)
def uniform_like(w, batch):
    """Uniform noise on scores."""
    s = scores(w, batch)
    return fitted(s + torch.rand_like(s), batch)


@_loss(expected="refused", text=_DRAWS)
def noise_of_fixed_shape(w, batch):
    """Noise for each dimension, the same for all samples."""
    return fitted(dot(w.Q[batch.items] + torch.randn(4, device=batch.labels.device), w.p), batch)


@_loss(expected="refused", text=_DRAWS)
def bernoulli(w, batch):
    """Samples that are left out by chance."""
    s = scores(w, batch)
    return batch.mean(entropies(s, batch) * torch.bernoulli(torch.sigmoid(s).detach()))


@_loss(expected="refused", text=_DRAWS)
def multinomial(w, batch):
    """A sample that is drawn."""
    s = scores(w, batch)
    drawn = torch.multinomial(torch.sigmoid(s).detach(), 1)
    return fitted(s, batch) + drawn.to(s.dtype).sum() * batch.mean(s)


@_loss(expected="refused", text=_DRAWS)
def permutation(w, batch):
    """Dimensions in an order that is drawn."""
    order = torch.randperm(4, device=batch.labels.device)
    return fitted(dot(w.Q[batch.items][..., order], w.p), batch)


@_loss(expected="refused", text=_DRAWS)
def normal_in_place(w, batch):
    """`normal_` of a tensor that the loss has made."""
    s = scores(w, batch)
    return fitted(s + torch.empty_like(s).normal_(), batch)


@_loss(expected="refused", text=_DRAWS)
def random_relu(w, batch):
    """A function of torch that draws slopes."""
    return fitted(functional.rrelu(scores(w, batch), training=True), batch)


@_loss(expected="refused", text=_DRAWS)
def gumbel_softmax(w, batch):
    """A function of torch that draws Gumbel's noise."""
    return fitted(dot(functional.gumbel_softmax(w.Q[batch.items], dim=-1), w.p), batch)


# Changes in place of what is not the loss's own


@_loss(expected="refused", text="place|in-place|changes|leaf", quick=True)
def parameter_changed(w, batch):
    """A parameter is changed in place."""
    with torch.no_grad():
        w.p.mul_(0.9)
    return fitted(scores(w, batch), batch)


@_loss(expected="refused", text="place|in-place|changes|leaf")
def parameter_added_to(w, batch):
    """A parameter is added to in place."""
    w.p.add_(0.1)
    return fitted(scores(w, batch), batch)


@_loss(expected="refused", text="place|in-place|changes|leaf")
def parameter_data_changed(w, batch):
    """A parameter is changed by way of `data`."""
    w.p.data.clamp_(-0.5, 0.5)
    return fitted(scores(w, batch), batch)


@_loss(expected="refused", text="place|in-place|changes|leaf")
def whole_changed(w, batch):
    """A whole table is changed in place."""
    with torch.no_grad():
        w.Q.whole().mul_(0.99)
    return fitted(scores(w, batch), batch)


@_loss(expected="refused", text="place|in-place|changes|leaf")
def labels_changed(w, batch):
    """Labels are smoothed in place."""
    batch.labels.mul_(0.9).add_(0.05)
    return fitted(scores(w, batch), batch)


@_loss(expected="either")
def parameter_replaced(w, batch):
    """A parameter is replaced by assignment."""
    w.p = w.p * 2
    return fitted(scores(w, batch), batch)


# What a loss returns, and what it asks for


@_loss(expected="refused", text="one number|per client|batch.mean|scalar|shape", quick=True)
def forgotten_mean(w, batch):
    """One number per sample."""
    return entropies(scores(w, batch), batch)


@_loss(expected="refused", text="one number|per client|batch.mean|scalar|shape")
def rows_returned(w, batch):
    """A row for each sample."""
    return w.Q[batch.items] * w.p


@_loss(expected="either", text="one number|per client|shape", quick=True)
def shape_of_one(w, batch):
    """A loss of shape (1,)."""
    return fitted(scores(w, batch), batch).unsqueeze(-1)


@_loss(expected="either", text="one number|per client|shape")
def penalty_of_shape_one(w, batch):
    """A penalty whose shape is that of a vector of one number."""
    return fitted(scores(w, batch), batch) + 0.01 * w.p.square().sum(-1).squeeze(-1)


@_loss(expected="refused", text="one number|per client|shape|batch")
def penalty_of_vector(w, batch):
    """A penalty on a vector, of which the sum was forgotten."""
    return fitted(scores(w, batch), batch) + 0.01 * w.p.square()


@_loss(expected="refused", text="number|parameter|gradient|constant")
def constant_loss(_w, batch):
    """A loss that depends on no parameter."""
    return torch.tensor(1.0, device=batch.labels.device)


@_loss(expected="refused", text="depend|parameter|gradient|constant")
def loss_of_labels(_w, batch):
    """A loss of labels alone."""
    return batch.mean(batch.labels)


@_loss(expected="refused", text="number|parameter|gradient|constant|tensor")
def loss_is_a_float(_w, _batch):
    """A loss that is a number of Python."""
    return 0.5


@_loss(expected="refused", text="number|tensor|None|return")
def loss_is_nothing(w, batch):
    """A loss without `return`."""
    fitted(scores(w, batch), batch)


@_loss(expected="refused", text="number|tensor|tuple|return")
def loss_is_a_pair(w, batch):
    """A loss that returns a pair."""
    s = scores(w, batch)
    return fitted(s, batch), s


@_loss(expected="refused", text="gradient|number|parameter|constant")
def loss_without_gradient(w, batch):
    """A loss that was detached."""
    return fitted(scores(w, batch), batch).detach()


@_loss(expected="refused", text="whole|gradient|number|bool|float|dtype")
def loss_of_whole_numbers(w, batch):
    """A loss that is a whole number."""
    return batch.mean(scores(w, batch)).long()


@_loss(expected="refused", text="[Cc]omplex|dtype|number")
def complex_loss(w, batch):
    """A loss of complex numbers."""
    return batch.mean(torch.complex(scores(w, batch), batch.labels))


@_loss(expected="refused", text="'?x'?.*parameter|parameter.*'?x'?")
def unknown_parameter(w, batch):
    """A parameter that does not exist, as an attribute."""
    return fitted(dot(w.Q[batch.items], w.p + w.x), batch)


@_loss(expected="refused", text="'?x'?.*parameter|parameter.*'?x'?")
def unknown_parameter_by_item(w, batch):
    """A parameter that does not exist, by its name."""
    return fitted(dot(w.Q[batch.items], w.p + w["x"]), batch)


@_loss("g", expected="refused", text="g.*server|server.*g")
def server_parameter(w, batch):
    """A parameter that only the server has."""
    return fitted(dot(w.Q[batch.items], w.p + w.g), batch)


@_loss(expected="refused", text="batch|mini-batch|users|attribute")
def unknown_of_batch(w, batch):
    """Something that a mini-batch does not have."""
    return fitted(scores(w, batch) + batch.users, batch)


@_loss(expected="refused", text="table|p")
def vector_as_table(w, batch):
    """A vector is asked for rows."""
    return fitted(dot(w.Q[batch.items], w.p[batch.items]), batch)


@_loss(expected="refused", text="table|Q")
def table_as_vector(w, batch):
    """A table without an index meets a number."""
    return fitted(scores(w, batch), batch) + (w.Q * 2).sum()


@_loss(expected="refused", text="whole|p|table")
def whole_of_vector(w, batch):
    """The whole of what is no table."""
    return fitted(scores(w, batch), batch) + w.p.whole().sum()


@_loss(expected="error", text="ZeroDivisionError")
def error_of_its_own(w, batch):
    """A loss that raises an error of Python."""
    return fitted(scores(w, batch), batch) / 0 + 1 / 0


@_loss(expected="refused", text="shape|size|must match|dimension")
def shapes_that_do_not_meet(w, batch):
    """Shapes that do not fit each other."""
    return fitted(dot(w.Q[batch.items][..., :3], w.p), batch)


# Axes counted from the front, where an engine has an axis of clients


@_loss(expected="refused", text="axis|dim|batch|samples")
def axis_counted_from_front(w, batch):
    """The sum over axis 1, which are dimensions in the loop and samples elsewhere."""
    return fitted((w.Q[batch.items] * w.p).sum(1), batch)


@_loss(expected="refused", text="axis|dim|batch|samples")
def softmax_over_axis_1(w, batch):
    """A softmax over axis 1."""
    return fitted(dot(torch.softmax(w.Q[batch.items], 1), w.p), batch)


@_loss(expected="refused", text="axis|dim|batch|samples")
def sum_over_axis_0(w, batch):
    """The sum over axis 0, which are samples in the loop and clients elsewhere."""
    return fitted(scores(w, batch), batch) + 0.1 * w.p.square().sum(0).sum(0)


@_loss(expected="refused", text="axis|dim|batch|samples")
def cat_over_axis_1(w, batch):
    """Rows joined over axis 1."""
    q = w.Q[batch.items]
    return fitted(torch.cat([q, q * w.p], 1).sum(-1), batch)


@_loss()
def stack_over_axis_0(w, batch):
    """Scores side by side over axis 0, which is a new one in every engine."""
    s = scores(w, batch)
    return fitted(torch.stack([s, s.square()]).sum(0), batch)


@_loss(expected="refused", text="axis|dim|batch|samples")
def unsqueeze_1(w, batch):
    """An axis put in at place 1."""
    s = scores(w, batch)
    return fitted((s.unsqueeze(1) * w.Q[batch.items]).sum(-1), batch)


@_loss(expected="refused", text="axis|dim|batch|samples")
def squeeze_of_everything(w, batch):
    """`squeeze` of all axes of size 1, of which a mini-batch of one has one more."""
    return fitted(scores(w, batch) + w.p.sum(-1, keepdim=True).squeeze(), batch)


@_loss(expected="refused", text="axis|dim|batch|samples|view|shape")
def view_of_all(w, batch):
    """A view that says how many samples there are."""
    q = w.Q[batch.items]
    return fitted((q * w.p).reshape(-1, 4).sum(-1), batch)


@_loss(expected="refused", text="axis|dim|batch|samples|transpose")
def transposed_by_t(w, batch):
    """`.T`, which turns all axes round."""
    return fitted((w.Q[batch.items] * w.p).T.sum(0), batch)


@_loss("M", expected="refused", text="axis|dim|batch|samples|transpose")
def matrix_by_t(w, batch):
    """`.t()`, which is for two axes alone."""
    return fitted(dot(w.Q[batch.items] @ w.M.t(), w.p), batch)


@_loss("M", expected="refused", text="axis|dim|batch|samples|transpose")
def matrix_by_mm(w, batch):
    """`torch.mm`, which is for two axes alone."""
    return fitted(dot(torch.mm(w.Q[batch.items], w.M), w.p), batch)


@_loss(expected="refused", text="axis|dim|batch|samples|transpose|permute")
def permuted(w, batch):
    """`permute` of two axes."""
    return fitted((w.Q[batch.items] * w.p).permute(1, 0).sum(0), batch)


@_loss("M", expected="refused", text="axis|dim|batch|samples|index")
def matrix_row_by_number(w, batch):
    """The first row of a matrix by an index from the front."""
    return fitted(dot(w.Q[batch.items], w.M[0]), batch)


@_loss("M", expected="refused", text="axis|dim|batch|samples|trace")
def trace_of_matrix(w, batch):
    """The trace of a matrix, which is for two axes alone."""
    return fitted(scores(w, batch), batch) + 0.1 * w.M.trace()


@_loss("M", expected="refused", text="one number|per client|axis|dim|batch|samples|sum")
def sum_of_whole_matrix(w, batch):
    """`.sum()` of a matrix, which is one number for all clients together."""
    return fitted(scores(w, batch), batch) + 0.1 * w.M.square().sum()


@_loss("h", expected="refused", text="one number|per client|axis|dim|batch|samples|sum|norm")
def norm_of_whole_vector(w, batch):
    """`.norm()` of a vector, which is one number for all clients together."""
    return fitted(scores(w, batch) * w.h.sum(-1), batch) + 0.1 * w.h.norm()


@_loss(expected="refused", text="one number|per client|axis|dim|batch|samples|sum|mean")
def mean_of_whole_table(w, batch):
    """`.mean()` of a whole table, which is one number for all clients together."""
    return fitted(scores(w, batch), batch) + 0.1 * w.Q.whole().square().mean()
