"""A cache of the rules that methods keep: federations of one process check each function once."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

from fedrec.federation import federation, program
from fedrec.federation.loss_key import LossKeys, is_opaque
from fedrec.federation.model.client import Program, Rewrite
from fedrec.federation.model.method import Method
from fedrec.federation.rules.losses import Rules
from fedrec.federation.state import state


@contextmanager
def rules_checked_once() -> Iterator[None]:
    """Let federations and their states read the cache; whoever calls `program.needs_of` checks everything."""
    programs: dict[Any, program.Needs] = {}
    functions: dict[Any, bool] = {}

    class KnownRules(Rules):
        """Rules that check no function twice."""

        def _check(self, stage: Any, call: Any, name: str, *how: Any, **further: Any) -> None:
            keys = LossKeys()
            read = keys.of(call), keys.of(self.method.derived)
            key = (
                stage,
                name,
                repr(self.parameters),
                self.method.items,
                how,
                *sorted(further.items()),
                *read,
            )
            if key not in functions:
                # Derived numbers are checked again, because they may be what asks for whole tables.
                self.derived.clear()
                before, self.whole_tables = self.whole_tables, False
                super()._check(stage, call, name, *how, **further)
                whole, self.whole_tables = self.whole_tables, before
                if any(map(is_opaque, read)):
                    self.whole_tables |= whole
                    return
                functions[key] = whole
            self.whole_tables |= functions[key]

    def needs_once(asked: Program, method: Method) -> program.Needs:
        keys = LossKeys()
        read = [method.score, method.derived, *program.losses_of(asked)]
        read += [operation.rows for operation in asked if isinstance(operation, Rewrite)]
        found = tuple(map(keys.of, read))
        key = (program.shape_of(asked), repr(method.parameters()), method.items, found)
        if key in programs:
            return programs[key]
        with mock.patch.object(program, "Rules", KnownRules):
            needs = program.needs_of(asked, method)
        if not any(map(is_opaque, found)):
            programs[key] = needs
        return needs

    with (
        mock.patch.object(federation, "needs_of", needs_once),
        mock.patch.object(state, "needs_of", needs_once),
    ):
        yield
