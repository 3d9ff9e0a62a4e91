"""What a source file says to the interpreter, in words that no version of Python changes."""

import pytest

from fedrec.plan.code import source_code

EVERYTHING = """
from typing import TYPE_CHECKING

import fedrec.data.split
from fedrec import door
from fedrec.files.atomic import write_text as write

if TYPE_CHECKING:
    from fedrec.config import names

LAYOUT = PLACE = {**dict(a=1), "key": [None, ..., 2.5, b"x", True]}


@door.cached
class Method(Base, kind="one"):
    \"\"\"Prose.\"\"\"

    cost: str = "O(1)"
    share = 1

    async def score(self, first, /, *rest: int, at=None, **more) -> "Method":
        async with first as (one, two):
            return f"{first!r:>{at}} and " "more" + (lambda x: -x[1:, ::2])(rest)


def step(items):
    global total
    for item in items:
        try:
            total += 1 if (found := item) else not 0
        except* ValueError as error:
            raise KeyError from error
        else:
            del total
    match items:
        case [1, *_] | {"a": Place(x=2)} if found:
            yield from (each async for each in items)
    return {x for x in items if x > 1 < 2}
"""


def test_the_same_code_has_the_same_digest_whatever_the_version_of_python():
    """Runs are trained on machines with another one."""
    assert source_code(EVERYTHING).digest == (
        "a2a37dc4e336d86821a7641350dc11319d242c8fe2534f312040feb373fef654"
    )


def test_what_a_file_imports_says_and_assigns_is_read():
    code = source_code(EVERYTHING)
    assert code.imports == {
        *("fedrec.data.split", "fedrec.door", "fedrec.files.atomic", "fedrec.files.atomic.write_text"),
    }
    assert {"key", "a", " and more", "one"} <= code.texts
    assert not {"O(1)", "Prose."} & code.texts
    assert code.names == {"LAYOUT", "PLACE", "dict"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = a.b", "x = a.c"),
        ("x = 1", "x = 1.0"),
        ("x = 'y'", "x = y"),
        ("f(*a)", "f(**a)"),
        ("x = {**a, 1: b}", "x = {a: 1, **b}"),
        ("def f(a, b=1): ...", "def f(a=1, b=1): ..."),
        ("def f(a, *, b): ...", "def f(a, b): ..."),
        ("from fedrec import a", "from fedrec import b"),
        ("x = [a, [b]]", "x = [[a], b]"),
    ],
)
def test_other_code_has_another_digest(before, after):
    assert source_code(before).digest != source_code(after).digest


def test_a_broken_file_is_an_error():
    with pytest.raises(SyntaxError):
        source_code("def")
