"""What the audit measures of a model: exposure, uploads and recommendations; stored when the model is not."""

from typing import Any

from fedrec.audit.exposure import exposure
from fedrec.audit.recommended import recommended
from fedrec.audit.uploads import attack_uploads
from fedrec.config.protocol import short_name
from fedrec.federation.observe.recorder import extras
from fedrec.runs.record import RunRecord

_EXPOSED = ("published", "only-pool", "clean")
"""The protocols whose draws the table of exposure counts."""


def measured(run: RunRecord) -> dict[str, Any]:
    """The inside of a run: `exposure` by its draws, `uploads` where it kept some, what is `recommended`.

    Nothing of a run that diverged: there is no model whose scores could follow its draws.
    """
    found: dict[str, Any] = {}
    if run.diverged is not None:
        return found
    if short_name(run.protocol) in _EXPOSED:
        found["exposure"] = exposure(run)
    if "users/traffic" in extras(run.tensors):
        found["uploads"] = attack_uploads(run.tensors, run.clients)
    if short_name(run.protocol) == "clean":
        found["recommended"] = recommended(run)
    return found
