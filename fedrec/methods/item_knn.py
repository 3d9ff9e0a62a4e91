"""item-knn: neighbours of items by cosine, with shrinkage.

    s_ij      n_ij / (sqrt(n_i n_j) + h); n_i users rated i, n_ij both; 0 for j = i
    near      the k items j with the largest s_ij, and all that equal the last of them
    score     of item i: sum of s_ij over training items j of u that are near i

A larger shrinkage h gives less weight to items that few users rated.
"""

import torch
from torch import Tensor
from typing_extensions import override

from fedrec.central.item_model import ItemModel
from fedrec.federation.model import Citation


class ItemKNN(ItemModel):
    """Item-based nearest neighbours."""

    paper = Citation(
        "Sarwar, Karypis, Konstan, Riedl",
        "Item-based collaborative filtering recommendation algorithms",
        "WWW",
        2001,
    )
    cost = "O(n m^2); memory m^2 numbers."

    @override
    def between(self, met: Tensor) -> Tensor:
        root = met.diagonal().sqrt()
        # A denominator below 1 belongs to an item that no user rated; its numerator is 0.
        likeness = met / (torch.outer(root, root) + self.settings["shrinkage"]).clamp(min=1)
        likeness.fill_diagonal_(0)
        last = likeness.topk(min(self.settings["neighbours"], len(met)), dim=0).values[-1]
        return torch.where(likeness < last, 0, likeness)


METHOD = ItemKNN
