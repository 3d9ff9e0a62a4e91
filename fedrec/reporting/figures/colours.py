"""Colours of the kinds of methods, and their counterparts on a dark background."""

from collections.abc import Mapping

from matplotlib.colors import to_hex, to_rgb

from fedrec.runs.method_kinds import MethodKind

KIND_COLOURS: Mapping[MethodKind, tuple[str, str]] = {
    "personalised": ("#c44a00", "#ff7a2a"),
    "federated": ("#2463c4", "#4d93f7"),
    "centralised": ("#a0307c", "#ff9ade"),
    "reference": ("#3f444b", "#eef1f4"),
}
"""Colours on a light and on a dark background; colour-blind readers can distinguish them, also as text."""
DARK_GROUND = "#14171b"
_DARKEST, _LIGHTEST = 0.085, 0.93  # of greys on a dark background
_NEUTRAL = 0.08  # of difference between the parts of a grey
_LEAST_CONTRAST = 3.0
_STEP = 0.05


def in_the_dark(colour: str) -> str:
    """The counterpart of a colour on a dark background.

    Greys swap light and dark. Other colours are lightened until their contrast suffices.
    """
    known = dict(KIND_COLOURS.values())
    if colour in known:
        return known[colour]
    red, green, blue = to_rgb(colour)
    if is_grey(colour):
        grey = _LIGHTEST - (red + green + blue) / 3 * (_LIGHTEST - _DARKEST)
        return to_hex((grey, grey, grey))
    share = 0.0
    while contrast_ratio(mixed := _whiter((red, green, blue), share), DARK_GROUND) < _LEAST_CONTRAST:
        share += _STEP
    return mixed


def is_grey(colour: str) -> bool:
    """Whether a colour is a grey."""
    parts = to_rgb(colour)
    return max(parts) - min(parts) < _NEUTRAL


def contrast_ratio(one: str, other: str) -> float:
    """The contrast of two colours, 1 to 21, as accessibility guidelines define it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def _whiter(colour: tuple[float, float, float], share: float) -> str:
    red, green, blue = (min(1.0, part + share * (1 - part)) for part in colour)
    return to_hex((red, green, blue))


def _luminance(colour: str) -> float:
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    return sum(weight * part for weight, part in zip((0.2126, 0.7152, 0.0722), linear, strict=True))
