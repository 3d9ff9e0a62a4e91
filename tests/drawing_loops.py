"""Training loops that draw negatives by planted rules: pools that leak or not, samplers that prefer items or not."""

from dataclasses import replace

import numpy as np

from fedrec.data.split import TEST, TRAIN, VALIDATION, Split
from tests.federations import planted_tastes

LEAKS, SOUND, NEUTRAL, UNIFORM = "leaks", "sound", "neutral", "uniform"


def made_split() -> Split:
    """Users with favourites among the items, so that held-out items are popular."""
    return planted_tastes(users=120, items=150, per_user=15, candidates=20)


def pool_of(split: Split, rule: str, *parts: int) -> np.ndarray:
    """Which items each user may draw (users x items); other `parts` than training may be left out, too."""
    may = np.ones((split.users, split.items), dtype=bool)
    left_out = {
        LEAKS: (TRAIN, VALIDATION, TEST),
        SOUND: (TRAIN,),
        NEUTRAL: (TRAIN, VALIDATION, TEST),
        UNIFORM: (),
    }
    for part in (*left_out[rule], *parts):
        may[split.pairs_of(part)] = False
    if rule == NEUTRAL:
        for listed in (split.candidates.validation, split.candidates.test):
            may[split.candidates.user[:, None], listed] = False
    return may


def popularity(split: Split) -> np.ndarray:
    """How many training rows each item has, and one more."""
    return np.bincount(split.pairs_of(TRAIN)[1], minlength=split.items) + 1.0


def drawn(may: np.ndarray, draws: int, weight: np.ndarray | None = None) -> tuple[np.ndarray, np.ndarray]:
    """So many draws of each user from its pool, by the weights of items."""
    rng = np.random.default_rng(0)
    weights = may * (np.ones(may.shape[1]) if weight is None else weight)
    items = [rng.choice(len(own), draws, p=own / own.sum()) for own in weights]
    return np.repeat(np.arange(len(may)), draws), np.concatenate(items)


def other_split(split: Split) -> Split:
    """The same rows, of which other items are held out: each user's first training items."""
    part = split.part.copy()
    for user in range(split.users):
        own = np.flatnonzero(split.user == user)
        part[own[-2:]] = TRAIN
        part[own[:2]] = VALIDATION, TEST
    return replace(split, part=part)
