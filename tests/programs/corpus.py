"""All cases by name."""

from collections.abc import Mapping
from types import MappingProxyType

from tests.programs.cases import Case
from tests.programs.hidden import HIDDEN
from tests.programs.losses import LOSSES
from tests.programs.rule_breakers import RULE_BREAKERS
from tests.programs.structures import STRUCTURES

_PARTS = (LOSSES.cases, RULE_BREAKERS.cases, STRUCTURES.cases, HIDDEN.cases)
CASES: Mapping[str, Case] = MappingProxyType({name: case for part in _PARTS for name, case in part.items()})
assert len(CASES) == sum(map(len, _PARTS))
