"""Digests of source files: the same for the same arithmetic, whatever the version of Python."""

import pytest

from fedrec.plan.source_digest import source_code

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
        "ce6a9610cee6c067d27a65bab28deb2371021017a161a1f4b01b451e2fa4acc2"
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


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def f(a):\n  x = a\n  return x", "def f(a):\n  y = a\n  return y"),
        ("def f(a):\n  return [x for x in a]", "def f(a):\n  return [y for y in a]"),
        ("def f(a):\n  def g(): return a\n  return g", "def f(a):\n  def h(): return a\n  return h"),
        ("def f():\n  raise E('one')", "def f():\n  raise E('two', 2) from None"),
        ("def f(a):\n  assert a, 'one'", "def f(a):\n  assert a, 'two'"),
        ("logger.info('one')\nx = 1", "x = 1"),
        ("print('one')\nx = 1", "print('two', file=f)\nx = 1"),
        ("def f(a: int) -> int: return a", "def f(a: float): return a"),
        ("def f(a):\n  x: int = a\n  return x", "def f(a):\n  y: float = a\n  return y"),
        ("if TYPE_CHECKING: from a import b\nx = 1", "x = 1"),
        ("def f(a):\n  try: g()\n  except E as x: h(x)", "def f(a):\n  try: g()\n  except E as y: h(y)"),
    ],
)
def test_names_of_variables_messages_and_types_of_functions_are_no_arithmetic(before, after):
    assert source_code(before).digest == source_code(after).digest


@pytest.mark.parametrize(
    ("before", "after"),
    [
        # Callers may name a parameter.
        ("def f(*, a, b): return a - b", "def f(*, b, a): return b - a"),
        ("def f(a):\n  x = a\n  y = 2\n  return x - y", "def f(a):\n  x = a\n  y = 2\n  return y - x"),
        ("def f(a):\n  return [x for x in a]", "def f(a):\n  return [a for x in a]"),
        ("def f():\n  global x\n  x = 1", "def f():\n  x = 1"),
        (
            "def f():\n  x = 1\n  def g():\n    nonlocal x\n    x = 2",
            "def f():\n  x = 1\n  def g():\n    x = 2",
        ),
        ("def f():\n  raise E('one')", "def f():\n  raise G('one')"),
        ("def f(a):\n  assert a", "def f(a):\n  assert not a"),
        ("class A:\n  x: int = 1", "class A:\n  x: float = 1"),
        ("def f(a=1): return a", "def f(a=2): return a"),
        ("@g\ndef f(a): return a", "@h\ndef f(a): return a"),
        ("x = print('one')", "x = print('two')"),
        # The `else` branch is what runs.
        ("if TYPE_CHECKING: x = 0\nelse: x = 1", "if TYPE_CHECKING: x = 0\nelse: x = 2"),
    ],
)
def test_other_arithmetic_has_another_digest(before, after):
    assert source_code(before).digest != source_code(after).digest


def test_a_broken_file_is_an_error():
    with pytest.raises(SyntaxError):
        source_code("def")
