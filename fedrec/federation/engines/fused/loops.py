"""Names, places and loops of C."""

import math
from collections.abc import Sequence

from fedrec.federation.engines.fused.nodes import ROWS, SAMPLES, Index


def c_name(name: str) -> str:
    """The name of a parameter as a part of names in C."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def broadcast(index: Index, shape: tuple[int, ...]) -> Index:
    """The index into a tensor that is broadcast to one of more axes."""
    own = index[len(index) - len(shape) :]
    return tuple("0" if size == 1 else place for place, size in zip(own, shape, strict=True))


def loop_index(shape: tuple[int, ...]) -> Index:
    """The names of a tensor's axes in loops; `i` is the current sample or row."""
    return tuple(
        "i" if size in (SAMPLES, ROWS) else "0" if size == 1 else f"k{axis}"
        for axis, size in enumerate(shape)
    )


def inner_index(over: tuple[int, ...]) -> Index:
    """The names of the axes that a reduction covers; `i` is the current sample or row."""
    return tuple(
        "i" if size in (SAMPLES, ROWS) else "0" if size == 1 else f"s{axis}" for axis, size in enumerate(over)
    )


def of_any_sample(index: Index) -> Index:
    """The same place of the sample `j`, where lanes do not have one each."""
    return tuple("j" if place == "i" else place for place in index)


def flat(index: Index, shape: tuple[int, ...]) -> str:
    """The place of an element among those of one client, sample or row."""
    text = ""
    for place, size in zip(index, shape, strict=True):
        if size not in (SAMPLES, ROWS, 1):
            text = f"({text} * {size} + {place})" if text else place
    return text or "0"


def adding(loops: list[str]) -> list[str]:
    """Loops whose innermost adds up numbers, in whatever order."""
    return _innermost(loops, "TOTAL")


def apart(loops: list[str]) -> list[str]:
    """Loops of a CPU whose innermost writes what none of its other turns reads."""
    return _innermost(loops, "APART")


def _innermost(loops: list[str], word: str) -> list[str]:
    """Loops of which a word tells the innermost."""
    heads = [number for number, line in enumerate(loops) if line.startswith("UNROLL for")]
    return [
        line.replace("UNROLL", word) if number in heads[-1:] else line for number, line in enumerate(loops)
    ]


def looped(
    shape: Sequence[int], index: Index, body: list[str], by_lanes: bool, unroll: bool = True
) -> list[str]:
    """Statements for every element; `by_lanes` divides them, and samples from i0 to i1, among lanes."""
    loops = [
        (place, size) for place, size in zip(index, shape, strict=True) if size not in (SAMPLES, ROWS, 1)
    ]
    if by_lanes:
        return _looped_by_lanes(loops, "j" if SAMPLES in shape else "", body)
    if not loops:
        return ["{", *body, "}"]
    pragma = "UNROLL " if unroll else ""
    heads = [f"{pragma}for (int {place} = 0; {place} < {size}; {place}++) {{" for place, size in loops]
    return [*heads, *body, "}" * len(loops)]


def _looped_by_lanes(loops: list[tuple[str, int]], sample: str, body: list[str]) -> list[str]:
    total = math.prod(size for _, size in loops)
    lines = [f"for (int e = LANE; e < {f'(i1 - i0) * {total}' if sample else total}; e += LANES) {{"]
    if sample:
        lines.append(f"const int {sample} = i0 + e / {total};")
    behind = total
    for number, (place, size) in enumerate(loops):
        behind //= size
        whole = f"e / {behind}" if behind != 1 else "e"
        first = number == 0 and not sample
        lines.append(f"const int {place} = {whole};" if first else f"const int {place} = ({whole}) % {size};")
    return [*lines, *body, "}"]
