# The project and the few words that rules are written with. No rules, no logic: `fedrec.plan` decides.

import os
import shlex
import sys
from pathlib import Path

from fedrec.config.configuration import read_configuration
from fedrec.errors import FedrecError
from fedrec.files.atomic import canonical_json, write_text
from fedrec.plan.asked import check_asked, runs_asked
from fedrec.plan.cached import CACHE_VARIABLE, check_cache, unchecked_origin
from fedrec.plan.cost import announcement
from fedrec.plan.fingerprint import code_fingerprint
from fedrec.plan.forecast import forecast
from fedrec.plan.project import Project
from fedrec.plan.run_list import ASKED, list_text
from fedrec.plan.run_matching import current, outdated
from fedrec.plan.runs import FILES, SUMMARY


def stop(error):
    """End with one message: Snakemake would tell an exception with lines of these files, which are right."""
    raise SystemExit(f"fedrec: {error}")


try:
    OWN_FILE, MIRROR = Path("config/config.yaml"), os.environ.get("FEDREC_MIRROR")
    CONFIGURATION = read_configuration(
        # As for Snakemake, a file given on the command line may take the place of the usual one.
        [OWN_FILE] * (OWN_FILE.exists() or not workflow.overwrite_configfiles)
        + workflow.overwrite_configfiles,
        workflow.config_settings.config,
    )
    PROJECT = Project.load(CONFIGURATION, mirror=Path(MIRROR) if MIRROR else None)
    if workflow.enable_cache:
        check_cache(os.environ.get(CACHE_VARIABLE))
except FedrecError as error:
    stop(error)

# Jobs are many processes: what one compiles of Python's modules, all others find, as in the Makefile.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# Jobs find the `fedrec` command of this environment, activated or not, the mirror, the files of the
# configuration, and whether runs that diverge are kept: through the environment, since a path, or that, as a
# parameter would re-run jobs when it alone changes.
TOLD = {
    "FEDREC_MIRROR": PROJECT.mirror or "",
    "FEDREC_CATALOGUE": PROJECT.configuration["catalogue"],
    "FEDREC_PROTOCOLS": PROJECT.configuration["protocol_file"],
    "FEDREC_METHODS": PROJECT.configuration["method_file"],
    "FEDREC_DIVERGED": PROJECT.configuration["diverged"],
}
shell.prefix(
    # A prefix of our own replaces Snakemake's, which is the first line here.
    "set -euo pipefail; "
    f"export PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH "
    + " ".join(f"{name}={shlex.quote(str(value))}" for name, value in TOLD.items())
    + "; "
)

# What rules say of the cache between checkouts, where one is asked for: otherwise Snakemake would warn of each
# that could use one. No environment of software belongs to a key, since rules name none.
CACHED = "omit-software" if workflow.enable_cache else False


def results(path):
    """A path below the results folder; a list of paths for several."""
    below = [
        f"{PROJECT.configuration['results']}/{one}"
        for one in ([path] if isinstance(path, str) else path)
    ]
    return below[0] if isinstance(path, str) else below


def job_of(wildcards):
    """The training run that a path names."""
    return PROJECT.job(PROJECT.run_at(**wildcards))


def origin_of(wildcards):
    """What decides a raw file besides its recipe."""
    return unchecked_origin(PROJECT.catalogue.raw_file(wildcards.path), PROJECT.mirror)


def inputs_of(wildcards):
    """Everything that a table, figure or page is made from."""
    return results(PROJECT.target(wildcards.target).inputs)


def plan_of(wildcards):
    """The plan of a target: everything besides its inputs that decides it."""
    return PROJECT.target(wildcards.target).as_json()


def chapter_of(wildcards):
    """Where a target stands in the report of Snakemake."""
    return PROJECT.chapter_of(wildcards.target)


def is_cached(job):
    """Whether the cache between checkouts has what a job would make."""
    return bool(CACHED) and workflow.async_run(job.rule.cache.exists(job))
