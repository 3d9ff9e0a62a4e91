"""Whether a number of ours agrees with a printed one, given how many users both are means over."""

import numpy as np
from numpy.typing import NDArray

LEAST_TOLERANCE = 0.02
"""The smallest tolerance of a printed fraction, however many users there are."""
_DEVIATIONS = 1.96
"""Standard errors on either side of a mean that hold 95 % of resampled means."""


def tolerance(values: NDArray[np.float64]) -> float:
    """The largest difference at which a printed fraction agrees with the mean of these values of users.

    It is half the width of the mean's 95 % bootstrap interval over users, but at least `LEAST_TOLERANCE`. The
    bootstrap's standard error is computed directly: the deviation divided by the root of the number of users.
    """
    return max(LEAST_TOLERANCE, _DEVIATIONS * float(np.std(values)) / float(np.sqrt(len(values))))
