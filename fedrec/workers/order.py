"""In which order commands are done; of its own, so that who offers the choice imports little."""

from typing import Literal, TypeAlias, get_args

Order: TypeAlias = Literal["longest", "shortest", "listed"]
"""Which come first: the longest, so that all are done soonest; the shortest, so that most are done when time
runs out; or those that were given first, so that these are."""
ORDERS_OF_WORK: tuple[Order, ...] = get_args(Order)
