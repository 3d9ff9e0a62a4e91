"""Accountant of differential privacy: the epsilon of the Gaussian and of the Laplace mechanism."""

import math

import numpy as np
from numpy.typing import NDArray

from fedrec.errors import ConfigurationError

ORDERS: tuple[int, ...] = (*range(2, 65), *range(68, 129, 4), *range(136, 257, 8), *range(272, 513, 16))
"""The Renyi orders to try. Each order gives a valid epsilon, so a missing one only loosens the bound."""


def gaussian_rdp(noise: float, sampling: float, order: int) -> float:
    """The Renyi divergence of integer `order` of one step of the subsampled Gaussian mechanism.

    `noise` is the standard deviation divided by the L2 norm to which a contribution is clipped. Each
    contribution takes part independently with probability `sampling`. Neighbouring datasets differ by the
    presence of one contribution (Mironov, Talwar and Zhang, 2019, section 3.3).
    """
    _demand_mechanism(noise, sampling)
    _demand(order >= 2, "a Renyi order must be at least 2", order)
    if sampling == 0:
        return 0.0
    if noise == 0:
        return math.inf
    # noise**2 would raise an error for extreme noise.
    precision = 1 / noise / noise
    if sampling == 1:
        return order / 2 * precision
    chosen = np.arange(2, order + 1)
    # Extreme noise makes the exponents 0 or infinite; their logarithms and sums are still correct.
    with np.errstate(over="ignore", divide="ignore"):
        exponent = chosen * (chosen - 1) / 2 * precision
        # The binomial weights sum to 1, so subtracting 1 from each exponential subtracts 1 from the sum. The
        # rest has no terms below 2, and no cancellation if the divergence is small.
        log_growth = exponent + np.log(-np.expm1(-exponent))
        log_weight = chosen * math.log(sampling) + (order - chosen) * math.log1p(-sampling)
        log_rest = np.logaddexp.reduce(_log_binomials(order)[2:] + log_weight + log_growth)
    return float(np.logaddexp(0, log_rest)) / (order - 1)


def gaussian_epsilon(noise: float, sampling: float, steps: int, delta: float) -> float:
    """The epsilon at `delta` after `steps` steps of the subsampled Gaussian mechanism.

    It is the least over `ORDERS` of the epsilon that the divergence gives (Canonne, Kamath and Steinke, 2020,
    proposition 12). Without noise it is infinite.
    """
    _demand_mechanism(noise, sampling)
    _demand(steps >= 0, "steps must be at least 0", steps)
    _demand(0 < delta < 1, "delta must lie between 0 and 1, both excluded", delta)
    if sampling == 0 or steps == 0:
        return 0.0
    epsilons = (
        steps * gaussian_rdp(noise, sampling, order)
        + math.log1p(-1 / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
        for order in ORDERS
    )
    return max(0.0, min(epsilons))


def laplace_epsilon(clip: float, scale: float, rounds: int) -> float:
    """The epsilon (delta is 0) of `rounds` uploads of one client, against any observer of the uploads.

    The client clips its change to the L1 norm `clip`, so two possible uploads differ by at most twice that.
    It adds Laplace noise of `scale` to each number. Rounds add up (basic composition). Without noise, epsilon
    is infinite.
    """
    _demand(clip > 0, "the clipping norm must be positive", clip)
    _demand(0 <= scale < math.inf, "the scale of noise must be at least 0 and finite", scale)
    _demand(rounds >= 0, "rounds must be at least 0", rounds)
    if rounds == 0:
        return 0.0
    return rounds * 2 * clip / scale if scale else math.inf


def _log_binomials(order: int) -> NDArray[np.float64]:
    """The logarithms of the binomial coefficients of `order` over 0, 1, ..., `order`."""
    factorial: NDArray[np.float64] = np.array([math.lgamma(number + 1) for number in range(order + 1)])
    return math.lgamma(order + 1) - factorial - factorial[::-1]


def _demand_mechanism(noise: float, sampling: float) -> None:
    _demand(0 <= noise < math.inf, "noise must be at least 0 and finite", noise)
    _demand(0 <= sampling <= 1, "sampling must be a probability, from 0 to 1", sampling)


def _demand(fulfilled: bool, rule: str, value: float) -> None:
    if not fulfilled:
        raise ConfigurationError(f"{rule}, got {value}.")
