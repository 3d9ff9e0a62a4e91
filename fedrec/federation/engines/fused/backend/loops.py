"""Names and loops of C."""

from collections.abc import Sequence
from enum import Enum

from fedrec.federation.engines.fused.ir.dims import SAMPLES, Shape, static_count
from fedrec.federation.engines.fused.ir.index import ANY_SAMPLE, Index, IndexExpr


class LoopKind(Enum):
    """What a compiler may do with a loop; the value stands before it."""

    PLAIN = ""
    UNROLLED = "UNROLL "
    SUMMED = "TOTAL "
    """Its turns add to one number, in whatever order."""
    INDEPENDENT = "APART "
    """No turn reads what another turn writes."""


def c_name(name: str) -> str:
    """The name of a parameter as a part of names in C."""
    return "".join(letter if letter.isalnum() else "_" for letter in name)


def looped(
    shape: Shape,
    index: Index,
    body: list[str],
    by_lanes: bool,
    innermost: LoopKind = LoopKind.UNROLLED,
    outer: LoopKind = LoopKind.UNROLLED,
) -> list[str]:
    """Statements for every element; `by_lanes` divides them, and samples from i0 to i1, among lanes.

    `innermost` and `outer` are the kinds of loops where lanes do not divide them.
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
