"""Clusters of similar clients, by k-means on the server."""

import numpy as np
import torch
from sklearn.cluster import KMeans
from torch import Tensor

_STARTS = 4


def clusters(vectors: Tensor, count: int, seed: int, round_: int) -> Tensor:
    """The cluster of each vector (clients), of at most `count` clusters, by k-means.

    It runs on the CPU in double precision, so clusters are the same for every device, up to ties.
    """
    points = vectors.detach().double().cpu().numpy()
    # Clients start from the same vector; there are at most as many clusters as different vectors.
    possible = min(count, len(np.unique(points, axis=0)))
    kmeans = KMeans(possible, n_init=_STARTS, random_state=(seed * 1_000_003 + round_) % 2**32)
    return torch.from_numpy(kmeans.fit_predict(points)).long().to(vectors.device)
