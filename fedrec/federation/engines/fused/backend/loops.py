"""Names and loops in C.

The module reads the name of a parameter, or a shape and the statements for one element. It gives text.
"""

from collections.abc import Sequence
from enum import Enum

from fedrec.federation.engines.fused.ir.dims import SAMPLES, Shape, static_count
from fedrec.federation.engines.fused.ir.index import ANY_SAMPLE, Index, IndexExpr


class LoopKind(Enum):
    """The freedom that the C compiler has with a loop; the value is the macro in front of the loop."""

    PLAIN = ""
    """No macro."""
    UNROLLED = "UNROLL "
    """On a GPU the compiler unrolls the loop; on a CPU the macro is empty."""
    SUMMED = "TOTAL "
    """Its iterations add to one number, in any order."""
    INDEPENDENT = "APART "
    """No iteration reads what another one writes."""


def c_name(name: str) -> str:
    """The name of a parameter, as a part of names in C."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def looped(
    shape: Shape,
    index: Index,
    body: list[str],
    by_lanes: bool,
    innermost: LoopKind = LoopKind.UNROLLED,
    outer: LoopKind = LoopKind.UNROLLED,
) -> list[str]:
    """The statements `body` in loops over every element of `shape`, with the variables of `index`.

    With `by_lanes` one loop divides all elements among the lanes, for samples from i0 to i1. Otherwise each
    axis has a loop of the kind `outer`, and the last one of the kind `innermost`.
    """
    places = zip(index, shape, strict=True)
    loops = [(place, size) for place, size in places if isinstance(size, int) and size != 1]
    if by_lanes:
        return _looped_by_lanes(loops, SAMPLES in shape, body)
    if not loops:
        return ["{", *body, "}"]
    kinds = [*[outer] * (len(loops) - 1), innermost]
    heads = [
        f"{kind.value}for (int {place} = 0; {place} < {size}; {place}++) {{"
        for kind, (place, size) in zip(kinds, loops, strict=True)
    ]
    return [*heads, *body, "}" * len(loops)]


def _looped_by_lanes(loops: Sequence[tuple[IndexExpr, int]], of_samples: bool, body: list[str]) -> list[str]:
    total = behind = static_count([size for _, size in loops])
    count = f"(i1 - i0) * {total}" if of_samples else str(total)
    lines = [f"for (int e = LANE; e < {count}; e += LANES) {{"]
    if of_samples:
        lines.append(f"const int {ANY_SAMPLE} = i0 + e / {total};")
    for number, (place, size) in enumerate(loops):
        behind //= size
        whole = f"e / {behind}" if behind != 1 else "e"
        is_first = number == 0 and not of_samples
        lines.append(
            f"const int {place} = {whole};" if is_first else f"const int {place} = ({whole}) % {size};"
        )
    return [*lines, *body, "}"]
