"""Measurements of a model (exposure, uploads, recommendations), stored in place of the model."""

from typing import Any

from fedrec.audit.exposure import exposure
from fedrec.audit.recommendations import recommended
from fedrec.audit.uploads import attack_uploads
from fedrec.config.protocol import short_name
from fedrec.federation.observe.recorder import extras
from fedrec.runs.record import RunRecord

_EXPOSED = ("published", "only-pool", "clean")
"""The protocols in the table of exposure."""


def measure_model(run: RunRecord) -> dict[str, Any]:
    """Measure a run's `exposure`, its `uploads` if it recorded some, and its `recommended` items.

    The result is empty for a run that diverged, since it has no model.
    """
    measurements: dict[str, Any] = {}
    if run.diverged is not None:
        return measurements
    if short_name(run.protocol) in _EXPOSED:
        measurements["exposure"] = exposure(run)
    if "users/traffic" in extras(run.tensors):
        measurements["uploads"] = attack_uploads(run.tensors, run.clients)
    if short_name(run.protocol) == "clean":
        measurements["recommended"] = recommended(run)
    return measurements
