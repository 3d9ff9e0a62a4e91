"""Losses are the same one if they are the same code over the same values, and only then."""

from functools import partial

import pytest

from fedrec.federation.loss_key import LossKeys
from tests.federations import method_of

KEYS = LossKeys()
key_of = KEYS.of


def closing_over(*values):
    def loss(_w, _batch):
        return values

    return loss


def with_default(value):
    def loss(_w, _batch, *, given=value):
        return given

    return loss


def wrapped(inner):
    return lambda w, batch: inner(w, batch)


class Holder:
    """An object with a method."""

    def __init__(self, value):
        self.value = value

    def loss(self, _w, _batch):
        return self.value


ONE, SAME, OTHER = Holder(1), Holder(1), Holder(2)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (closing_over(0.5, "a"), closing_over(0.5, "a")),
        (closing_over([1, (2.0, None)]), closing_over([1, (2.0, None)])),
        (with_default(0.5), with_default(0.5)),
        (wrapped(closing_over(0.5)), wrapped(closing_over(0.5))),
        (closing_over(ONE), closing_over(SAME)),
        (ONE.loss, ONE.loss),
        (partial(closing_over(1), 2, given=3), partial(closing_over(1), 2, given=3)),
    ],
)
def test_losses_that_are_written_anew_are_the_same(first, second):
    assert key_of(first) == key_of(second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (closing_over(0.5), closing_over(0.25)),
        (closing_over(1), closing_over(1.0)),
        (closing_over(1), closing_over(True)),
        (closing_over([1, 2]), closing_over([1, 3])),
        (with_default(0.5), with_default(0.25)),
        (wrapped(closing_over(0.5)), wrapped(closing_over(0.25))),
        (wrapped(closing_over(0.5)), wrapped(with_default(0.5))),
        (closing_over(ONE), closing_over(OTHER)),
        (ONE.loss, OTHER.loss),
        (partial(closing_over(1), 2), partial(closing_over(1), 3)),
        (partial(closing_over(1), given=2), partial(closing_over(1), given=3)),
        (lambda w, _: w, lambda _, batch: batch),
    ],
)
def test_losses_of_other_code_or_values_are_others(first, second):
    assert key_of(first) != key_of(second)


def test_an_object_that_has_changed_is_another():
    holder = Holder(1)
    before = key_of(holder.loss)
    holder.value = 2
    assert key_of(holder.loss) != before


def test_a_key_can_be_looked_up():
    method = method_of("fedrap")
    assert {key_of(method.loss_in(3)): "found"}[key_of(method.loss_in(3))] == "found"
    assert key_of(method.loss_in(3)) != key_of(method.loss_in(4))
