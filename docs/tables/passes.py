"""The passes of the fused engine over the loss of FedMF."""

import re

from docs.tables.numbers import ROOT
from fedrec.config.methods import load_methods
from fedrec.runs.kernels import kernels_text


def of_fedmf() -> str:
    """The listing of `fedrec kernel fedmf --passes`, without line numbers and passes that change nothing."""
    methods = load_methods(ROOT / "config/methods.yaml")
    text = kernels_text(methods, "fedmf", None, [], round_=1, gpu=False, double=False, passes=True)
    listing = re.sub(r"\n[a-z ]+:\n  \(nothing changes\)", "", text.partition("*/\n")[2])
    return "```text\n" + re.sub(r"\.py:\d+", ".py", listing).strip() + "\n```"
