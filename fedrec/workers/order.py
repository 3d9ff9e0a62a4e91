"""Orders of commands, in a module of their own, so that the option parser imports little."""

from typing import Literal, TypeAlias, get_args

Order: TypeAlias = Literal["longest", "shortest", "listed"]
"""The first commands: the longest, to finish all soonest; the shortest, to finish most in limited time; or in
the order of the list."""
ORDERS_OF_WORK: tuple[Order, ...] = get_args(Order)
