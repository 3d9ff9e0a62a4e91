"""Keys of losses: two losses have the same key if the same code reads the same values.

A local round makes new loss functions in every round. Facts about a loss, such as its kernel and its needs,
hold for every loss with the same key. A key covers everything that a function can read: its code, closure,
defaults and globals, and the attributes and classes of objects. It goes down to numbers, texts and the
content of tensors. A value that cannot be decomposed gets a new key each time. Reading all values takes time,
so they are read again only after one was replaced or changed.
"""

from collections.abc import Callable, Hashable
from functools import partial
from itertools import chain
from types import FunctionType, MethodType
from typing import Any

from fedrec.federation.loss_code import code_structure, plain_structure
from fedrec.federation.loss_numbers import cells_of, is_cyclic
from fedrec.federation.value_snapshot import OPAQUE, PLAIN, LossKey, ValueSnapshot

_MOST_SNAPSHOTS = 256
"""Largest number of cached snapshots."""


class LossKeys:
    """Makes the keys of losses, with a cache of the values that it has read."""

    def __init__(self) -> None:
        self._snapshots: dict[tuple[int, ...], ValueSnapshot] = {}
        self._compared: set[tuple[int, ...]] = set()
        """Snapshots that were found current while the present key is made."""

    def of(self, value: Any, *, numbers: bool = True) -> LossKey:  # noqa: ANN401 - a loss, and what it reads
        """The key of a function; two functions with equal keys compute the same.

        Without `numbers`, the numbers that `numbers_of` finds may differ.
        """
        self._compared.clear()
        return self._key(value, numbers or is_cyclic(value), ())

    def _key(self, value: Any, numbers: bool, active: tuple[Any, ...]) -> LossKey:  # noqa: ANN401 - see above
        kind = type(value)
        if kind is float and not numbers:
            return "number"
        if kind in PLAIN:
            return plain_structure(value)
        if kind is MethodType:
            return ("method", self._key(value.__func__, True, active), self._read(value.__self__))
        if kind is FunctionType:
            return self._function(value, numbers, active)
        if kind is partial:
            parts = (value.func, *value.args, *chain(*value.keywords.items()))
            return ("partial", len(value.args), *(self._key(part, True, active) for part in parts))
        return self._read(value)

    def _function(self, function: FunctionType, numbers: bool, active: tuple[Any, ...]) -> LossKey:
        if function in active:
            return ("again", active.index(function))
        active = (*active, function)
        parts: list[LossKey] = [self._code(function)]
        parts += [self._key(cell, numbers, active) for cell in cells_of(function)]
        further = (function.__defaults__, function.__kwdefaults__, function.__dict__)
        parts += [self._read(part) if part else None for part in further]
        return tuple(parts)

    def _code(self, function: FunctionType) -> LossKey:
        """The key of a function's code and of the globals that it reads."""
        code, its_globals = function.__code__, function.__globals__

        def read(snapshot: ValueSnapshot) -> Hashable:
            return (code_structure(code), snapshot.of_globals(code, its_globals))

        return self._snapshot((id(code), id(its_globals)), (code, its_globals), read)

    def _read(self, value: Any) -> LossKey:  # noqa: ANN401 - see above
        return self._snapshot((id(value),), value, lambda snapshot: snapshot.structure(value))

    def _snapshot(
        self, place: tuple[int, ...], value: object, read: "Callable[[ValueSnapshot], Hashable]"
    ) -> LossKey:
        known = self._snapshots.get(place)
        if known is None or not (place in self._compared or known.is_current()):
            if len(self._snapshots) >= _MOST_SNAPSHOTS:
                self._snapshots.clear()
            known = self._snapshots[place] = ValueSnapshot(value)
            known.take(read)
        self._compared.add(place)
        return known.key


def is_opaque(key: LossKey) -> bool:
    """Whether a key equals no other key, because a value could not be decomposed."""
    return isinstance(key, tuple) and (key[:1] == (OPAQUE,) or any(map(is_opaque, key)))
