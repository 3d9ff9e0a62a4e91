"""Purposes of random draws, and the numbers per Philox counter."""

from enum import IntEnum

LANES = 4
"""Words of one counter."""


class Purpose(IntEnum):
    """Purpose of a draw. Its number is part of every result: never reuse or change one."""

    TIES = 1
    CANDIDATES = 2
    SYNTHETIC = 3
    INITIAL = 4
    PARTICIPANTS = 5
    AGGREGATED = 6
    NEGATIVES = 7
    SHUFFLE = 8
    UPLOAD_NOISE = 9
    GRADIENT_NOISE = 10
    HALVES = 11
    LATE_NEGATIVES = 12
    SERVER = 13
    LENDERS = 14
