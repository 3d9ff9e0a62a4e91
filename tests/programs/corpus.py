"""All cases by name."""

from collections.abc import Mapping
from types import MappingProxyType

from tests.programs.cases import Case
from tests.programs.losses import LOSSES
from tests.programs.rule_breakers import RULE_BREAKERS
from tests.programs.structures import STRUCTURES

CASES: Mapping[str, Case] = MappingProxyType(LOSSES.cases | RULE_BREAKERS.cases | STRUCTURES.cases)
assert len(CASES) == len(LOSSES.cases) + len(RULE_BREAKERS.cases) + len(STRUCTURES.cases)
