"""Listings of a fit's graphs after every pass, for `fedrec kernel --passes`; the engine does not use them.

The module reads a model, a fit and a device. It gives one text per step of the fit.
"""

from collections.abc import Iterator

from fedrec.federation.engines.fused.compiling import code_of
from fedrec.federation.engines.fused.device import Device
from fedrec.federation.engines.fused.passes.listing import PassListing
from fedrec.federation.engines.fused.passes.schedule import Schedule
from fedrec.federation.engines.fused.trace.loss_graph import trace_loss
from fedrec.federation.engines.fused.trace.symbolic_inputs import Model
from fedrec.federation.loss_numbers import numbers_of
from fedrec.federation.model.client import Fit


def pass_listings(model: Model, fit: Fit, *, target: Device, batch: int) -> Iterator[str]:
    """Yield the listing of every step; raise `UnsupportedError` if the compiler refuses the fit."""
    lifted = code_of(model, fit, target=target, batch=batch).lifted
    for number, step in enumerate(fit.steps):
        loss = step.loss or fit.loss
        graph = trace_loss(model, loss, list(step.rates), numbers_of(loss) if lifted else None)
        listing = PassListing(f"s{number}_")
        Schedule(graph, target, listing.look)
        yield listing.text
