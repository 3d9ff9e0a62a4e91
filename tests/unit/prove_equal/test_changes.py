"""Changed statements: a refactoring has none that must be executed, any other edit has."""

import pytest

from tests.unit.prove_equal.packages import both_changes, package

BASE = """
    from functools import cache

    RATE = 0.1

    class Optimiser:
        def step(self, value, decay=0.5):
            '''Move a value.'''
            if value > 0:
                value = value - RATE
                value = value * decay
            else:
                value = value + RATE
            return value

    @cache
    def total(values):
        result = 0
        for value in values:
            result += Optimiser().step(value)
        return result

    def _other(values):
        result = 1
        for value in values:
            result *= value
        return result

    print(total, _other)
"""


def found(tmp_path, before, after):
    """The changed lines of the newer version, and of the older one."""
    old = before if isinstance(before, dict) else {"a": before}
    new = after if isinstance(after, dict) else {"a": after}
    folders = package(tmp_path / "old", **old), package(tmp_path / "new", **new)
    texts = []
    for folder, change in zip(folders[::-1], both_changes(*folders), strict=True):
        files = {one.file: (folder / one.file).read_text().splitlines() for one in change.statements}
        texts.append([files[one.file][one.at - 1].strip() for one in change.statements])
    return texts


def edited(old, new):
    assert BASE.count(old) == 1, old
    return BASE.replace(old, new)


def test_equal_packages_have_no_changed_statement(tmp_path):
    assert found(tmp_path, BASE, BASE) == [[], []]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("'''Move a value.'''", "'''Prose.'''  # and a comment"),
        ("def step(self, value, decay=0.5):", "def step(self, value: float, decay: float = 0.5) -> float:"),
        ("print(total, _other)", "print(total, 'another text', _other)"),
    ],
)
def test_prose_and_types_are_no_change(tmp_path, old, new):
    assert found(tmp_path, BASE, edited(old, new)) == [[], []]


def test_a_renamed_function_changes_its_callers_alone(tmp_path):
    new, old = found(tmp_path, BASE, BASE.replace("step", "move"))
    assert (new, old) == (["result += Optimiser().move(value)"], ["result += Optimiser().step(value)"])


FUNCTION = """
    def total(values):
        result = 0
        for value in values:
            result += value
        return result
"""
USER = "import fedrec.{0}\n\nprint(fedrec.{0}.total)\n"


def test_a_moved_function_and_a_split_module_are_no_change(tmp_path):
    other = FUNCTION.replace("total", "product").replace("+=", "*=")
    user = "from fedrec.{} import {}\nprint({})\n"
    one_module = {"a": FUNCTION + other, "user": user.format("a", "total", "total")}
    two_modules = {"a": FUNCTION, "b": other, "user": user.format("a", "total", "total")}
    assert found(tmp_path, one_module | {"c": "product = 1"}, two_modules | {"c": "product = 1"}) == [[], []]


def test_a_function_that_moves_to_another_existing_module_is_no_change(tmp_path):
    before = {"a": FUNCTION, "b": "RATE = 1", "user": USER.format("a")}
    after = {"a": "", "b": "RATE = 1" + FUNCTION.replace("\n    ", "\n"), "user": USER.format("b")}
    new, old = found(tmp_path, before, after)
    assert (new, old) == (["import fedrec.b"], ["import fedrec.a"])


def test_of_statements_that_become_a_function_only_the_new_ones_are_changed(tmp_path):
    before = """
        def train(values):
            if values:
                for value in values:
                    move(value)
            return values
    """
    after = """
        def train(values):
            if values:
                _move_all(values)
            return values

        def _move_all(values):
            if values:
                for value in values:
                    move(value)
    """
    user = {"user": "import a\na.train(move)"}
    new, _ = found(tmp_path, {"a": before, **user}, {"a": after, **user})
    assert new == ["_move_all(values)", "def _move_all(values):", "if values:"]


def test_a_deleted_function_that_nothing_calls_is_no_change(tmp_path):
    dead = """
    def unused(values):
        return values * 3

    def _private(values):
        return values * 4

    class Unused:
        def method(self):
            return 5
    """
    # Another module has a private function of the same name.
    user = {"user": "def _private():\n    return 1\nprint(_private)\n"}
    assert found(tmp_path, {"a": BASE + dead, **user}, {"a": BASE, **user}) == [[], []]


@pytest.mark.parametrize(
    "live",
    [
        # torch calls it.
        "class Layer(Module):\n    def forward(self):\n        return 3\nprint(Layer)",
        # The decorator keeps it for later.
        "@registered\ndef sampler():\n    return 3",
        # Its name is computed.
        "class Names:\n    def call(self, name):\n        return getattr(self, f'_{name}')()\n"
        "    def _pow(self):\n        return 3\nNames().call('pow')",
        # Another module imports it.
        "def _shared():\n    return 3",
    ],
)  # fmt: skip
def test_a_function_that_others_may_call_is_not_dead(tmp_path, live):
    user = {"user": "from fedrec.a import _shared"}
    new, _ = found(tmp_path, {"a": live, **user}, {"a": live.replace("return 3", "return 4"), **user})
    assert new == ["return 4"]


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("RATE = 0.1", "RATE = 0.2", "RATE = 0.2"),
        ("value * decay", "value / decay", "value = value / decay"),
        ("if value > 0", "if value >= 0", "if value >= 0:"),
        ("decay=0.5", "decay=0.6", "def step(self, value, decay=0.6):"),
        ("self, value, decay", "self, decay, value", "def step(self, decay, value=0.5):"),
        ("@cache", "@once", "@once"),
        ("@cache\n", "\n", None),
        ("class Optimiser:", "class Optimiser(Base):", "class Optimiser(Base):"),
        ("result += Opt", "result -= Opt", "result -= Optimiser().step(value)"),
    ],
)
def test_a_changed_constant_operator_default_decorator_or_base_class_is_found(tmp_path, old, new, line):
    newer, older = found(tmp_path, BASE, edited(old, new))
    assert line in newer if line else older == ["@cache"]


def test_swapped_branches_are_found(tmp_path):
    text = (
        BASE.replace("value - RATE", "?").replace("value + RATE", "value - RATE").replace("?", "value + RATE")
    )
    new, old = found(tmp_path, BASE, text)
    assert {"value = value - RATE", "value = value + RATE"} <= set(new)
    assert {"value = value - RATE", "value = value + RATE"} <= set(old)


def test_a_statement_in_another_branch_is_found(tmp_path):
    moved = edited("                value = value * decay\n", "").replace(
        "value = value + RATE\n", "value = value + RATE\n                value = value * decay\n"
    )
    assert found(tmp_path, BASE, moved) == [["value = value * decay"], ["value = value * decay"]]


def test_statements_in_another_order_are_found(tmp_path):
    lines = "                value = value - RATE\n", "                value = value * decay\n"
    new, old = found(tmp_path, BASE, edited("".join(lines), "".join(lines[::-1])))
    assert set(new) == set(old) == {line.strip() for line in lines}


def test_functions_that_exchange_their_bodies_are_found(tmp_path):
    text = (
        BASE.replace("total", "?").replace("_other", "total").replace("?", "_other").replace("@cache\n", "\n")
    )
    new, old = found(tmp_path, BASE.replace("@cache\n", "\n"), text)
    assert {"result = 0", "result = 1", "result *= value"} <= set(new) & set(old)


CHOICE = """
    def name(value):
        match value:
            case 1 if value:
                result = "one"
            case 2:
                raise ValueError(value)
            case _:
                result = "more"
        try:
            return open(result)
        except KeyError:
            pass
        except OSError:
            raise ValueError(result)
    print(name)
"""


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("case 1 if value:", "case 1 if not value:", "case 1 if not value:"),
        ("case 2:", "case 3:", "case 3:"),
        ('"more"', '"many"', 'result = "many"'),
        ("except KeyError:", "except (KeyError, TypeError):", "except (KeyError, TypeError):"),
    ],
)
def test_changed_cases_and_handlers_are_found(tmp_path, old, new, line):
    assert line in found(tmp_path, CHOICE, CHOICE.replace(old, new))[0]


def test_a_changed_error_path_is_none(tmp_path):
    text = CHOICE.replace(
        "raise ValueError(value)", "text = f'{value}'\n                raise TypeError(text)"
    )
    text = text.replace("except OSError:", "except (OSError, TypeError):")
    assert found(tmp_path, CHOICE, text) == [[], []]


def test_a_case_counts_by_itself_and_not_by_its_match(tmp_path):
    folders = package(tmp_path / "old", a=CHOICE), package(tmp_path / "new", a=CHOICE.replace("one", "1"))
    (change,) = both_changes(*folders)[0].statements
    assert change.is_executed({"a.py": [5]})
    assert not change.is_executed({"a.py": [2, 3, 4, 7, 8, 9]})
    assert not change.is_executed({"b.py": [5]})


def test_a_function_that_is_only_defined_is_not_executed(tmp_path):
    text = edited("decay=0.5", "decay=None")
    folders = package(tmp_path / "old", a=BASE), package(tmp_path / "new", a=text)
    (change,) = both_changes(*folders)[0].statements
    lines = folders[1].joinpath("a.py").read_text().splitlines()
    defined = lines.index("    def step(self, value, decay=None):") + 1
    assert not change.is_executed({"a.py": [defined]})
    assert change.is_executed({"a.py": [defined + 2]})


@pytest.mark.parametrize(
    ("old", "new", "literals"),
    [
        ("RATE = 0.1", "RATE = -0.1", ({"-0.1": 1}, {"0.1": 1})),
        ("if value > 0", "if value >= 0", ({">=": 1}, {">": 1})),
        ("result = 1", "result = 2", ({"2": 1}, {"1": 1})),
        ("result = 1", "result = sort(values, descending=True)", ({"True": 1}, {"1": 1})),
        ("decay=0.5", "decay: float | None = None", ({"None": 1}, {"0.5": 1})),
        ("@cache", "@cache\n    @other", ({}, {})),
        ("return value\n\n    @", "value = value\n            return value\n\n    @", ({}, {})),
    ],
)
def test_the_literals_of_changed_statements_are_counted(tmp_path, old, new, literals):
    assert literals_found(tmp_path, BASE, edited(old, new)) == literals


def literals_found(tmp_path, before, after):
    """What only the newer version spells, and what only the older one does."""
    newer, older = both_changes(package(tmp_path / "old", a=before), package(tmp_path / "new", a=after))
    return newer.literals - older.literals, older.literals - newer.literals


def test_a_planted_truth_value_is_another_literal(tmp_path):
    text = edited("result = 0", "result = sort(values, descending=True)")
    other = text.replace("True", "False")
    assert literals_found(tmp_path, text, other) == ({"False": 1}, {"True": 1})
