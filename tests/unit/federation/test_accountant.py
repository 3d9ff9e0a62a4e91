"""The accountant: by hand, by quadrature, against Opacus, and what must hold for any setting."""

import itertools
import math
import warnings
from functools import cache
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

from fedrec.errors import ConfigurationError
from fedrec.federation.privacy import accountant
from fedrec.federation.privacy.accountant import ORDERS, gaussian_epsilon, gaussian_rdp, laplace_epsilon

NOISES, SAMPLINGS = (0.5, 0.8, 1.0, 2.0, 8.0), (0.001, 0.01, 0.1, 0.5, 0.9)
STEPS, DELTAS = (1, 30, 1000), (1e-3, 1e-5, 1e-8)
SAMPLED = list(itertools.product(NOISES, SAMPLINGS))
MECHANISMS = list(itertools.product(NOISES, (*SAMPLINGS, 1.0)))
"""Noise and sampling, also of everybody."""
LASTING = list(itertools.product(STEPS, DELTAS))


@pytest.fixture(autouse=True, scope="module")
def _a_step_is_accounted_once():
    """Epsilons of many numbers of steps and deltas read the divergences of the same few mechanisms."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(accountant, "gaussian_rdp", cache(gaussian_rdp))
        yield


noises, samplings = st.floats(0.3, 20), st.floats(1e-4, 1)
steps, deltas = st.integers(1, 5000), st.floats(1e-10, 0.1)


def log_densities(noise, sampling, furthest):
    """The distance of points, and there the log densities of a step without and with one contribution of size 1."""
    points, step = np.linspace(-40 * noise, furthest + 40 * noise, 40_001, retstep=True)

    def normal(mean):
        return -(((points - mean) / noise) ** 2) / 2 - math.log(noise * math.sqrt(2 * math.pi))

    without = normal(0)
    mixed = [math.log1p(-sampling) + without, math.log(sampling) + normal(1)] if sampling < 1 else [normal(1)]
    return step, without, logsumexp(mixed, axis=0)


def divergence(one, other, step, order):
    return (logsumexp(order * one + (1 - order) * other) + math.log(step)) / (order - 1)


def test_divergence_is_the_integral_of_the_definition():
    cases = [(*mechanism, order) for mechanism in MECHANISMS for order in (2, 3, 10, 32)]
    expected = []
    for noise, sampling, order in cases:
        step, without, present = log_densities(noise, sampling, order)
        both = divergence(present, without, step, order), divergence(without, present, step, order)
        # The guarantee is for whichever of two neighbours has the contribution: the larger one counts.
        expected.append(max(both))
    np.testing.assert_allclose([gaussian_rdp(*case) for case in cases], expected, rtol=1e-9, atol=1e-13)


def test_divergence_of_order_two_and_three_by_hand():
    noise, sampling = np.array(SAMPLED).T
    growth = np.expm1(1 / noise**2)
    second = np.log1p(sampling**2 * growth)
    third = 3 * sampling**2 * (1 - sampling) * growth + sampling**3 * np.expm1(3 / noise**2)
    np.testing.assert_allclose([gaussian_rdp(*mechanism, 2) for mechanism in SAMPLED], second, rtol=1e-12)
    np.testing.assert_allclose(
        [gaussian_rdp(*mechanism, 3) for mechanism in SAMPLED], np.log1p(third) / 2, rtol=1e-12
    )


def test_divergence_at_the_ends():
    assert gaussian_rdp(2.0, 1.0, 8) == pytest.approx(1.0, rel=1e-15)
    assert gaussian_rdp(2.0, 0.0, 8) == gaussian_rdp(0.0, 0.0, 8) == 0.0
    assert gaussian_rdp(0.0, 0.1, 8) == gaussian_rdp(0.0, 1.0, 8) == math.inf
    assert gaussian_rdp(2.0, 1 - 1e-12, 8) == pytest.approx(1.0)
    # Extreme noise is no error.
    for sampling, order in itertools.product((1e-300, 0.3, 1 - 2**-53, 1.0), (2, 512)):
        assert gaussian_rdp(1e-310, sampling, order) == gaussian_rdp(1e-200, sampling, order) == math.inf
        assert gaussian_rdp(1e200, sampling, order) == gaussian_rdp(1e308, sampling, order) == 0.0


def test_small_divergences_keep_their_digits():
    """Sampling so rare that 1 + divergence is 1 in double precision."""
    assert gaussian_rdp(10.0, 1e-9, 2) == pytest.approx(1e-18 * math.expm1(0.01), rel=1e-12)


def opacus_epsilon(orders, divergences, delta):
    # It imports much, which every worker would do to see which tests there are.
    from opacus.accountants.analysis import rdp as opacus

    with warnings.catch_warnings(action="ignore", category=UserWarning):  # the best order is the last
        return max(0, opacus.get_privacy_spent(orders=orders, rdp=divergences, delta=delta)[0])


def test_divergence_and_epsilon_are_those_of_opacus():
    from opacus.accountants.analysis import rdp as opacus

    divergences, epsilons, expected = [], [], []
    for noise, sampling in MECHANISMS:
        single = opacus.compute_rdp(q=sampling, noise_multiplier=noise, steps=1, orders=ORDERS)
        divergences.append(single)
        expected += [opacus_epsilon(ORDERS, count * single, delta) for count, delta in LASTING]
        epsilons += [gaussian_epsilon(noise, sampling, *lasting) for lasting in LASTING]
    ours = [[gaussian_rdp(*mechanism, order) for order in ORDERS] for mechanism in MECHANISMS]
    # Opacus takes the logarithm of a sum near 1, hence the absolute part.
    np.testing.assert_allclose(ours, divergences, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(epsilons, expected, rtol=1e-9, atol=1e-9)


def test_the_orders_left_out_would_gain_little():
    orders = range(2, ORDERS[-1] + 1)
    epsilons, best = [], []
    for noise, sampling in SAMPLED:
        single = np.array([gaussian_rdp(noise, sampling, order) for order in orders])
        best += [opacus_epsilon(orders, count * single, delta) for count, delta in LASTING]
        epsilons += [gaussian_epsilon(noise, sampling, *lasting) for lasting in LASTING]
    np.testing.assert_array_less(epsilons, 1.001 * np.array(best) + 1.0001e-9)


def test_one_step_keeps_its_promise():
    """The exact delta of one step at the epsilon found, by quadrature of the definition."""
    for noise, sampling in MECHANISMS:
        step, without, present = log_densities(noise, sampling, 1)
        for delta in DELTAS:
            epsilon = gaussian_epsilon(noise, sampling, 1, delta)
            for one, other in ((without, present), (present, without)):
                exact = step * np.maximum(np.exp(one) - np.exp(epsilon + other), 0).sum()
                assert exact <= delta, (noise, sampling, delta)


def test_steps_of_everybody_keep_their_promise():
    """Steps without sampling are one Gaussian step of less noise, whose delta is known (Balle and Wang, 2018)."""
    normal = NormalDist()

    def exact_delta(epsilon, single):
        near, far = 1 / (2 * single) - epsilon * single, -1 / (2 * single) - epsilon * single
        return normal.cdf(near) - math.exp(min(epsilon, 700)) * normal.cdf(far)

    tight = 0
    for noise, (count, delta) in itertools.product(NOISES, LASTING):
        single, epsilon = noise / math.sqrt(count), gaussian_epsilon(noise, 1.0, count, delta)
        assert exact_delta(epsilon, single) <= delta, (noise, count, delta)
        # An accountant that promised nothing would pass the above: a fifth less must be too little.
        if epsilon < 100:
            assert exact_delta(0.8 * epsilon, single) > delta, (noise, count, delta)
            tight += 1
    assert tight > len(NOISES) * len(LASTING) / 2


@settings(max_examples=40)
@given(noises, samplings, steps, deltas)
def test_epsilon_falls_with_noise_and_delta_and_rises_with_steps_and_sampling(noise, sampling, count, delta):
    epsilon = gaussian_epsilon(noise, sampling, count, delta)
    assert 0 <= epsilon < math.inf
    slack = 1e-12 * (1 + epsilon)
    assert gaussian_epsilon(1.5 * noise, sampling, count, delta) <= epsilon + slack
    assert gaussian_epsilon(noise, sampling, count, 2 * delta) <= epsilon + slack
    assert gaussian_epsilon(noise, sampling, 2 * count, delta) >= epsilon - slack
    assert gaussian_epsilon(noise, (1 + sampling) / 2, count, delta) >= epsilon - slack


@given(noises, samplings, st.sampled_from(ORDERS[:-1]))
def test_divergence_rises_with_its_order(noise, sampling, order):
    larger = ORDERS[ORDERS.index(order) + 1]
    assert gaussian_rdp(noise, sampling, order) <= gaussian_rdp(noise, sampling, larger) * (1 + 1e-12)


def test_epsilon_at_the_ends():
    assert gaussian_epsilon(0.0, 0.1, 1, 1e-5) == math.inf
    assert gaussian_epsilon(0.0, 1.0, 1, 1e-5) == math.inf
    assert gaussian_epsilon(1.0, 0.0, 100, 1e-5) == gaussian_epsilon(1.0, 0.1, 0, 1e-5) == 0.0
    assert gaussian_epsilon(8.0, 0.001, 1, 0.1) == 0.0


def test_laplace_by_hand():
    cases = {
        (1.0, 1.0, 1): 2.0,
        (0.1, 0.4, 100): 50.0,
        (0.5, 4.0, 8): 2.0,
        (1.0, 0.0, 1): math.inf,
        (1.0, 0.0, 0): 0.0,
        (1.0, 1.0, 0): 0.0,
        (math.inf, 1.0, 1): math.inf,
    }
    np.testing.assert_allclose([laplace_epsilon(*case) for case in cases], list(cases.values()), rtol=1e-12)


def test_laplace_epsilon_is_the_largest_ratio_of_densities():
    clip, scale = 0.7, 1.3
    # The two uploads furthest apart: the whole change in one number, in opposite directions.
    points = np.linspace(-10, 10, 4001)
    ratio = (np.abs(points + clip) - np.abs(points - clip)) / scale
    assert laplace_epsilon(clip, scale, 1) == pytest.approx(ratio.max())


def test_the_impossible_is_refused():
    for function, arguments, message in (
        (gaussian_rdp, (-1.0, 0.1, 2), "noise must be at least 0 and finite, got -1.0"),
        (gaussian_rdp, (math.nan, 0.1, 2), "noise must"),
        (gaussian_rdp, (math.inf, 0.1, 2), "noise must"),
        (gaussian_rdp, (1.0, -0.1, 2), "sampling must"),
        (gaussian_rdp, (1.0, 1.1, 2), "sampling must"),
        (gaussian_rdp, (1.0, math.nan, 2), "sampling must"),
        (gaussian_rdp, (1.0, 0.1, 1), "order must"),
        (gaussian_epsilon, (-1.0, 0.1, 1, 1e-5), "noise must"),
        (gaussian_epsilon, (1.0, 2.0, 1, 1e-5), "sampling must"),
        (gaussian_epsilon, (1.0, 0.1, -1, 1e-5), "steps must"),
        (gaussian_epsilon, (1.0, 0.1, 1, 0.0), "delta must"),
        (gaussian_epsilon, (1.0, 0.1, 1, 1.0), "delta must"),
        (gaussian_epsilon, (1.0, 0.0, 0, math.nan), "delta must"),
        (laplace_epsilon, (0.0, 1.0, 1), "clipping norm must be positive, got 0.0"),
        (laplace_epsilon, (-1.0, 1.0, 1), "clipping norm"),
        (laplace_epsilon, (1.0, -1.0, 1), "scale of noise"),
        (laplace_epsilon, (1.0, math.inf, 1), "scale of noise"),
        (laplace_epsilon, (1.0, math.nan, 1), "scale of noise"),
        (laplace_epsilon, (1.0, 1.0, -1), "rounds must"),
    ):
        with pytest.raises(ConfigurationError, match=message):
            function(*arguments)
