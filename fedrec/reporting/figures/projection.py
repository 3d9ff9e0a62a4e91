"""Projections of vectors into a plane, in which near points stay near."""

import numpy as np
from matplotlib.axes import Axes
from numpy.typing import NDArray
from sklearn.manifold import TSNE

from fedrec.reporting.figures.panels import bare

Points = NDArray[np.float64]


def projected(points: Points) -> Points:
    """A plane in which near points stay near (t-SNE), scaled to the unit square; equal points stay equal."""
    distinct, index = np.unique(points.astype(np.float32), axis=0, return_inverse=True)
    if len(distinct) < 4:
        return np.column_stack((points[:, 0], np.zeros(len(points)))).astype(np.float64)
    perplexity = min(30.0, (len(distinct) - 1) / 3)
    flat = TSNE(perplexity=perplexity, init="pca", random_state=0, n_jobs=1).fit_transform(distinct)
    low, high = flat.min(0), flat.max(0)
    scaled: Points = ((flat - low) / np.where(high > low, high - low, 1)).astype(np.float64)
    return scaled[index.reshape(-1)]


def square(panel: Axes) -> None:
    """Give a panel the unit square as its range, to which projections are scaled."""
    panel.set_xlim(-0.05, 1.05)
    panel.set_ylim(-0.05, 1.05)
    panel.set_box_aspect(1)
    bare(panel)
