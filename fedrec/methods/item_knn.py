"""item-knn: neighbours of items by cosine, with shrinkage.

    s_ij      n_ij / (sqrt(n_i n_j) + h); n_i users met i, n_ij met both; 0 for j = i
    near      of each item i the k items j of the largest s_ij, and those equal to the last of them
    score     of item i: sum of s_ij over training items j of u that are near i

A large shrinkage h trusts items that few users met less.
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
        # Below 1 it is that of an item which nobody met: the numerator is 0.
        likeness = met / (torch.outer(root, root) + self.settings["shrinkage"]).clamp(min=1)
        likeness.fill_diagonal_(0)
        last = likeness.topk(min(self.settings["neighbours"], len(met)), dim=0).values[-1]
        return torch.where(likeness < last, 0, likeness)


METHOD = ItemKNN
