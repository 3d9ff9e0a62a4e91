"""Snapshots of the values that a loss reads, decomposed into numbers, texts and the content of tensors."""

import hashlib
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cache, cached_property, partial
from itertools import count
from operator import attrgetter, is_
from types import (
    BuiltinFunctionType,
    CellType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any, TypeAlias, cast

import numpy as np
import torch
from torch import Tensor

from fedrec.federation.loss_code import (
    code_structure,
    globals_of,
    has_hidden_reads,
    is_foreign,
    is_user_package,
    names_of,
    plain_structure,
)
from fedrec.federation.loss_numbers import cells_of, content_of_cell
from fedrec.federation.model.method import Method

LossKey: TypeAlias = Hashable

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), type(NotImplemented), range)
"""Types of values without parts."""
_NAMED = (GetSetDescriptorType, MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType)
"""Types of immutable values that their names identify."""
_SPELLED = (torch.dtype, torch.device, torch.layout, torch.memory_format, np.dtype, np.generic)
"""Types of immutable values that their `repr` identifies."""
_NO_DATA = frozenset({
    "__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__annotate__",
    "__annotate_func__", "__annotations_cache__", "__abstractmethods__", "_abc_impl",
    "__static_attributes__", "__firstlineno__", "__qualname__", "__parameters__", "__orig_bases__",
    "__match_args__", "__classcell__", "__slotnames__",
})  # fmt: skip
"""Attributes of a class with which no loss computes."""
_MOST_READ = 1 << 22
"""Most elements of a tensor whose content is compared each time; a larger one is compared by its version."""
_PARTS = tuple(map(attrgetter, ("__code__", "__defaults__", "__kwdefaults__")))
_ATTRIBUTES = attrgetter("__dict__")
_MISSING = object()
OPAQUE = "opaque"
"""First entry of a key that equals no other key."""
_OPAQUE_NUMBERS = count()


@dataclass
class ValueSnapshot:
    """Decomposition of a value into its key, with references for checking whether the key is current."""

    value: object
    """The value, kept alive because its address identifies it."""
    key: LossKey = None
    is_opaque: bool = False
    seen: dict[int, int] = field(default_factory=dict)
    kept: list[object] = field(default_factory=list)
    attributes: list[tuple[object, tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)
    mappings: list[tuple[Mapping[Any, Any], tuple[Any, ...], tuple[Any, ...]]] = field(default_factory=list)
    sequences: list[tuple[Any, tuple[Any, ...]]] = field(default_factory=list)
    names: list[tuple[dict[str, Any], tuple[str, ...], tuple[Any, ...]]] = field(default_factory=list)
    functions: list[FunctionType] = field(default_factory=list)
    parts: tuple[list[Any], ...] = field(default_factory=lambda: tuple([] for _ in _PARTS))
    """The `_PARTS` of each of the `functions`."""
    bare: list[FunctionType] = field(default_factory=list)
    """The functions without attributes."""
    cells: list[CellType] = field(default_factory=list)
    closed_over: list[Any] = field(default_factory=list)
    contents: list[tuple[Callable[[Any], Hashable], Any, Hashable]] = field(default_factory=list)

    def take(self, read: "Callable[[ValueSnapshot], Hashable]") -> None:
        """Read the value and set its key."""
        try:
            structure = read(self)
        except RecursionError:
            self.is_opaque = True
        if self.is_opaque:
            self.key = (OPAQUE, next(_OPAQUE_NUMBERS))
        else:
            self.key = hashlib.sha256(repr(structure).encode("utf-8", "surrogatepass")).digest()

    def is_current(self) -> bool:
        """Whether no value that was read has changed since."""
        return (
            not self.is_opaque
            and all(_same_items(vars(owner), keys, values) for owner, keys, values in self.attributes)
            and all(_same_items(items, keys, values) for items, keys, values in self.mappings)
            and all(_same(items, values) for items, values in self.sequences)
            and all(all(map(is_, map(found.get, names), values)) for found, names, values in self.names)
            and all(
                all(map(is_, map(part, self.functions), values))
                for part, values in zip(_PARTS, self.parts, strict=True)
            )
            and not any(map(_ATTRIBUTES, self.bare))
            and all(map(is_, map(content_of_cell, self.cells), self.closed_over))
            and all(of(value) == content for of, value, content in self.contents)
        )

    def structure(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        """The structure of a value: its type and parts, as a hashable value."""
        kind = type(value)
        if kind in PLAIN:
            return plain_structure(value)
        if id(value) in self.seen:
            return ("again", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        if isinstance(value, _NAMED):
            return ("named", value.__objclass__.__qualname__, value.__name__)
        if isinstance(value, BuiltinFunctionType):
            held = value.__self__
            owner = held.__name__ if isinstance(held, ModuleType) else self.structure(held)
            return ("built in", owner, value.__qualname__)
        if isinstance(value, _SPELLED):
            return (kind.__name__, repr(value))
        if isinstance(value, Enum):
            beside = None if is_foreign(kind.__module__) else self._attributes(value)
            return ("enum", kind.__module__, kind.__qualname__, value.name, beside)
        for known, read in _READERS:
            if isinstance(value, known):
                return read(self, value)
        return self._object(value)

    def of_globals(self, code: CodeType, its_globals: dict[str, Any]) -> Hashable:
        """The structure of the globals that code reads."""
        self.is_opaque |= has_hidden_reads(code)
        read, every = globals_of(code), names_of(code)
        # A missing name may be defined later.
        self.names.append((its_globals, read, tuple(map(its_globals.get, read))))
        return tuple((name, self._named(its_globals[name], every)) for name in read if name in its_globals)

    def _named(self, value: Any, names: tuple[str, ...]) -> Hashable:  # noqa: ANN401 - see above
        """The structure of a global; for a module, that of its attributes in `names`."""
        if not isinstance(value, ModuleType):
            return self.structure(value)
        if is_foreign(value.__name__) and not is_user_package(value.__name__):
            return ("module", value.__name__)
        if id(value) in self.seen:
            return ("again", self.seen[id(value)])
        self.seen[id(value)] = len(self.seen)
        found = vars(value)
        self.names.append((found, names, tuple(map(found.get, names))))
        read = tuple((name, self._named(found[name], names)) for name in names if name in found)
        return ("module", value.__name__, *read)

    def of_function(self, value: FunctionType) -> Hashable:
        """The structure of a function: its code and every value that the code can read."""
        if is_foreign(value.__module__ or ""):
            return ("function", value.__module__, value.__qualname__)
        cells = cells_of(value)
        self.functions.append(value)
        for part, values in zip(_PARTS, self.parts, strict=True):
            values.append(part(value))
        self.cells += value.__closure__ or ()
        self.closed_over += cells
        if not value.__dict__:
            self.bare.append(value)
        further = (*cells, value.__defaults__, value.__kwdefaults__, value.__dict__ or None)
        return (
            "function", code_structure(value.__code__), *map(self.structure, further),
            self.of_globals(value.__code__, value.__globals__),
        )  # fmt: skip

    def of_method(self, value: MethodType) -> Hashable:
        """The structure of a bound method: its function and object."""
        return ("method", self.structure(value.__func__), self.structure(value.__self__))

    def of_wrapper(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        """The structure of a property, static method or class method."""
        if isinstance(value, property):
            return ("property", *map(self.structure, (value.fget, value.fset, value.fdel)))
        held = value.func if isinstance(value, cached_property) else value.__func__
        return (type(value).__name__, self.structure(held))

    def of_partial(self, value: "partial[Any]") -> Hashable:
        """The structure of a partial: its function and arguments."""
        return ("partial", *map(self.structure, (value.func, value.args, value.keywords)))

    def of_type(self, value: type[Any]) -> Hashable:
        """The structure of a class: its name, bases and attributes."""
        name = (value.__module__, value.__qualname__)
        if is_foreign(value.__module__):
            return ("class", *name)
        held = vars(value)
        self.attributes.append((value, tuple(held), tuple(held.values())))
        parts = tuple((key, self.structure(part)) for key, part in held.items() if key not in _NO_DATA)
        return ("class", *name, tuple(map(self.structure, value.__bases__)), parts)

    def of_mapping(self, value: Mapping[Any, Any]) -> Hashable:
        """The structure of a mapping: keys and values in their order."""
        self.mappings.append((value, tuple(value), tuple(value.values())))
        pairs = tuple((self.structure(key), self.structure(part)) for key, part in value.items())
        return ("mapping", pairs, self._beside(value))

    def of_sequence(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        """The structure of a sequence: its parts in their order."""
        parts = tuple(value)
        if not isinstance(value, tuple):
            self.sequences.append((value, parts))
        return ("sequence", tuple(map(self.structure, parts)), self._beside(value))

    def of_set(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        """The structure of a set: its parts, sorted."""
        self.contents.append((frozenset, value, frozenset(value)))
        parts = sorted((self.structure(part) for part in sorted(value, key=repr)), key=repr)
        return ("set", tuple(parts), self._beside(value))

    def of_bytes(self, value: bytearray) -> Hashable:
        """The content of a bytearray."""
        self.contents.append((bytes, value, bytes(value)))
        return ("bytes", bytes(value))

    def of_tensor(self, value: Tensor) -> Hashable:
        """The content of a tensor."""
        if value.layout != torch.strided or value.device.type not in ("cpu", "cuda"):
            self.is_opaque = True
            return None
        small = value.device.type == "cpu" and value.numel() <= _MOST_READ
        state = array_content if small else _storage_state
        self.contents.append((state, value, state(value)))
        return (array_content(value), value.requires_grad)

    def of_array(self, value: "np.ndarray[Any, Any]") -> Hashable:
        """The content of an array."""
        if value.dtype.hasobject:
            return ("array", value.shape, self.structure(value.tolist()))
        self.contents.append((array_content, value, array_content(value)))
        return array_content(value)

    def _object(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        """The structure of an object: its class, its attributes, and further state that pickle stores."""
        kind: Any = type(value)
        if _has_own_reduction(kind):
            return (self.structure(kind), self._attributes(value), self._reduced(value))
        if _hides_something(value):
            self.is_opaque = True
            return None
        return (self.structure(kind), self._attributes(value))

    def _beside(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        """The class of a container; with its attributes if the class is a subclass."""
        kind = type(value)
        if kind in (dict, list, tuple, set, frozenset, MappingProxyType):
            return kind.__name__
        return (self.structure(kind), self._attributes(value))

    def _attributes(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        held = getattr(value, "__dict__", None)
        pairs = [] if held is None else [*held.items()]
        if held is not None:
            self.attributes.append((value, tuple(held), tuple(held.values())))
        slots = _slots_of(cast(Any, type(value)))
        if slots:
            found = _of_slots(value)
            self.contents.append((_places_of_slots, value, _places_of_slots(value)))
            self.kept.append(found)
            pairs += [(name, part) for name, part in zip(slots, found, strict=True) if part is not _MISSING]
        # Clients cannot see the server's object; `server_guard` refuses a loss that reads it.
        hidden = ("server",) if isinstance(value, Method) else ()
        return tuple((name, self.structure(part)) for name, part in pairs if name not in hidden)

    def _reduced(self, value: Any) -> Hashable:  # noqa: ANN401 - see above
        reduced = partial(_reduction, dict(self.seen))
        content = reduced(value)
        self.is_opaque |= content is None
        self.contents.append((reduced, value, content))
        return content


_READERS: tuple[tuple[Any, Callable[[ValueSnapshot, Any], Hashable]], ...] = (
    (FunctionType, ValueSnapshot.of_function),
    (MethodType, ValueSnapshot.of_method),
    (type, ValueSnapshot.of_type),
    (Tensor, ValueSnapshot.of_tensor),
    ((dict, MappingProxyType), ValueSnapshot.of_mapping),
    ((list, tuple), ValueSnapshot.of_sequence),
    ((set, frozenset), ValueSnapshot.of_set),
    (np.ndarray, ValueSnapshot.of_array),
    (bytearray, ValueSnapshot.of_bytes),
    (partial, ValueSnapshot.of_partial),
    (ModuleType, lambda _, value: ("module", value.__name__)),
    ((property, staticmethod, classmethod, cached_property), ValueSnapshot.of_wrapper),
)
"""Reader of values by type; values of other types are read as objects."""


def array_content(value: Any) -> Hashable:  # noqa: ANN401 - a tensor or an array
    """The content of a tensor or an array: type, shape and a hash of its numbers."""
    if isinstance(value, Tensor):
        flat = value.detach().cpu().resolve_conj().resolve_neg().contiguous().reshape(-1)
        content = _digest(flat.view(torch.uint8).numpy())
        return ("tensor", str(value.dtype), str(value.device), tuple(value.shape), content)
    return ("array", str(value.dtype), value.shape, _digest(np.ascontiguousarray(value)))


def _digest(values: "np.ndarray[Any, Any]") -> bytes:
    return hashlib.sha256(values.reshape(-1).view(np.uint8).data if values.size else b"").digest()


def _storage_state(value: Tensor) -> Hashable:
    """The address of a tensor and its version counter."""
    return (value.data_ptr(), value._version)


def _reduction(seen: dict[int, int], value: Any) -> Hashable:  # noqa: ANN401 - see above
    """The state that pickle would store of an object, or None if it refuses; `seen` has earlier objects."""
    snapshot = ValueSnapshot(value, seen=dict(seen))
    structure: Hashable
    try:
        parts = value.__reduce_ex__(2)
        parts = parts if isinstance(parts, tuple) else (parts,)
        structure = snapshot.structure(
            tuple(list(part) if hasattr(part, "__next__") else part for part in parts)
        )
    # An object's class may raise any error.
    except Exception:
        return None
    return None if snapshot.is_opaque else structure


def _same(found: Any, values: Any) -> bool:  # noqa: ANN401 - see above
    return len(found) == len(values) and all(map(is_, found, values))


def _same_items(found: Mapping[Any, Any], keys: tuple[Any, ...], values: tuple[Any, ...]) -> bool:
    return len(found) == len(keys) and all(map(is_, found.values(), values)) and all(map(is_, found, keys))


@cache
def _slots_of(kind: Hashable) -> tuple[str, ...]:
    """The slots of a class and of its bases."""
    found: dict[str, None] = {}
    for each in cast(type[Any], kind).__mro__:
        found |= {name: None for name, part in vars(each).items() if isinstance(part, MemberDescriptorType)}
    return tuple(found)


def _of_slots(value: Any) -> tuple[Any, ...]:  # noqa: ANN401 - see above
    return tuple(getattr(value, name, _MISSING) for name in _slots_of(cast(Any, type(value))))


def _places_of_slots(value: Any) -> Hashable:  # noqa: ANN401 - see above
    return tuple(map(id, _of_slots(value)))


@cache
def _has_own_reduction(kind: Hashable) -> bool:
    """Whether a class defines how pickle reduces its objects, as classes of C do."""
    return any(getattr(kind, name) is not getattr(object, name) for name in ("__reduce__", "__reduce_ex__"))


def _hides_something(value: Any) -> bool:  # noqa: ANN401 - see above
    """Whether an object has hidden state, so that pickle refuses it."""
    try:
        value.__reduce_ex__(2)
    # An object's class may raise any error.
    except Exception:
        return True
    return False
