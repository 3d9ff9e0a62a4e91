"""Whether a number of ours agrees with a printed one, given how many users both are means over."""

import numpy as np
from numpy.typing import NDArray

LEAST_TOLERANCE = 0.02
"""How far ours may always be from a printed fraction, however many users there are."""
_DEVIATIONS = 1.96
"""Standard errors to either side of a mean within which 95 % of resampled means lie."""


def tolerance(values: NDArray[np.float64]) -> float:
    """How far a printed fraction may be from the mean of these values of users, and agree with it.

    Half the width of the 95 % interval of that mean over resampled users, but at least `LEAST_TOLERANCE`. The
    bootstrap's own standard error of a mean is known without drawing: the deviation over the root of users.
    """
    return max(LEAST_TOLERANCE, _DEVIATIONS * float(np.std(values)) / float(np.sqrt(len(values))))
