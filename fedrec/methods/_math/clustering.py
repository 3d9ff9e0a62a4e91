"""Groups of similar clients, as a server finds them."""

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

_STARTS = 4


def clusters(vectors: Tensor, count: int, seed: int, round_: int) -> Tensor:
    """The number of the cluster of each vector, of `count` at most, by k-means.

    On the CPU and in double precision: the same clusters on every device, up to ties.
    """
    points = vectors.detach().double().cpu().numpy()
    # Clients start from the same vector, and there are no more clusters than different vectors.
    possible = min(count, len(np.unique(points, axis=0)))
    kmeans = KMeans(possible, n_init=_STARTS, random_state=(seed * 1_000_003 + round_) % 2**32)
    return torch.from_numpy(kmeans.fit_predict(points)).long().to(vectors.device)
