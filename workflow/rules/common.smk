# The project and the few words that rules are written with. No rules, no logic: `fedrec.plan` decides.

import os
import shlex
import sys
from pathlib import Path

from snakemake.exceptions import WorkflowError

from fedrec.errors import FedrecError
from fedrec.files.atomic import canonical_json, write_text
from fedrec.plan.cost import announcement
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.project import Project

try:
    MIRROR = os.environ.get("FEDREC_MIRROR")
    PROJECT = Project.load(config, mirror=Path(MIRROR) if MIRROR else None)
except FedrecError as error:
    raise WorkflowError(str(error)) from None

# Jobs find the `fedrec` command of this environment, activated or not, the mirror, and the files of the
# configuration: through the environment, since a path as a parameter would re-run jobs when it alone changes.
PLACES = {
    "FEDREC_MIRROR": PROJECT.mirror or "",
    "FEDREC_CATALOGUE": config["catalogue"],
    "FEDREC_PROTOCOLS": config["protocol_file"],
    "FEDREC_METHODS": config["method_file"],
}
shell.prefix(
    # A prefix of our own replaces Snakemake's, which is the first line here.
    "set -euo pipefail; "
    f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
    + " ".join(f"{name}={shlex.quote(str(place))}" for name, place in PLACES.items())
    + "; "
)


def results(path):
    """A path below the results folder; a list of paths for several."""
    below = [
        f"{config['results']}/{one}"
        for one in ([path] if isinstance(path, str) else path)
    ]
    return below[0] if isinstance(path, str) else below


def job_of(wildcards):
    """The training run that a path names."""
    return PROJECT.job(PROJECT.run_at(**wildcards))


def inputs_of(wildcards):
    """Everything that a table, figure or page is made from."""
    return results(PROJECT.target(wildcards.target).inputs)


def plan_of(wildcards):
    """The plan of a target: everything besides its inputs that decides it."""
    return PROJECT.target(wildcards.target).as_json()


def chapter_of(wildcards):
    """Where a target stands in the report of Snakemake."""
    return PROJECT.chapter_of(wildcards.target)


def unknown(wildcards):
    """Say that there is no such target, and which is nearest: Snakemake only says that no rule makes it."""
    raise WorkflowError(PROJECT.no_target(wildcards.unknown))
