"""Snakemake's cache between checkouts: whether it can be used, and what its keys must tell apart.

Snakemake names what a job made by a hash of the rule's command, of its parameters and of all jobs before it,
without the job's wildcards and without the content of files that other jobs made. Rules name fingerprints of
code, settings and recipes as parameters, which is all that decides a result; but for raw files whose content
nobody checks.
"""

import os
from pathlib import Path

from fedrec.config.catalogue import RawFile
from fedrec.errors import ConfigurationError
from fedrec.files.atomic import canonical_json, sha256_of_file
from fedrec.plan.fingerprint import code_fingerprint

CACHE_VARIABLE = "SNAKEMAKE_OUTPUT_CACHE"
"""Names the folder of the cache."""


def check_cache(location: str | None) -> None:
    """Raise `ConfigurationError` unless `location` can hold a cache.

    Asked before any job: Snakemake would find out when the first run is trained, and lose it.
    """
    if not location:
        raise ConfigurationError(f"--cache: no folder is set. Type: export {CACHE_VARIABLE}=/path/to/cache")
    is_remote = "://" in location
    if not is_remote and not (Path(location).is_dir() and os.access(location, os.W_OK | os.X_OK)):
        raise ConfigurationError(
            f"--cache: {CACHE_VARIABLE} is {location}, which is not a folder that you can write to. Create "
            "it, or set another folder."
        )


def unchecked_origin(file: RawFile, mirror: Path | None) -> str:
    """What decides a raw file, apart from its recipe; empty if all sources give the same checked content.

    Where they need not, that is the code which fetches it, and the copies that the mirror has of it: two
    mirrors may hold two files of one name.
    """
    accepted = file.accepted_sha256()
    if len(accepted) == 1 and None not in accepted:
        return ""
    named = [source.location for source in file.sources if source.kind == "mirror"]
    copies = [mirror / path for path in named] if mirror is not None else []
    hashes = [sha256_of_file(copy) for copy in copies if copy.is_file()]
    return canonical_json([code_fingerprint("fedrec.data.fetch"), hashes])
