"""Snakemake's between-workflow cache: check its folder, and complete its cache keys.

Snakemake's cache key is a hash of the rule's command, its parameters and all jobs before it. The key covers
neither the job's wildcards nor the content of files that other jobs made. fedrec's rules have the
fingerprints of code, settings and recipes as parameters. These decide every result, except for raw files
without a checksum: `unchecked_origin` covers those.
"""

import os
from pathlib import Path

from fedrec.config.catalogue import RawFile
from fedrec.errors import ConfigurationError
from fedrec.files.atomic import canonical_json, sha256_of_file
from fedrec.plan.fingerprint import code_fingerprint

CACHE_VARIABLE = "SNAKEMAKE_OUTPUT_CACHE"
"""The environment variable that names the folder of the cache."""


def check_cache(location: str | None) -> None:
    """Raise `ConfigurationError` unless `location` can hold a cache.

    Called before any job: Snakemake would fail only after the first training, and lose that run.
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
    """Cache key of a raw file in addition to its recipe; empty if a checksum fixes its content.

    Otherwise the key has the fingerprint of the code that fetches the file, and the checksums of the mirror's
    copies: two mirrors may have different files of one name.
    """
    accepted = file.accepted_sha256()
    if len(accepted) == 1 and None not in accepted:
        return ""
    locations = [source.location for source in file.sources if source.kind == "mirror"]
    copies = [mirror / path for path in locations] if mirror is not None else []
    hashes = [sha256_of_file(copy) for copy in copies if copy.is_file()]
    return canonical_json([code_fingerprint("fedrec.data.fetch"), hashes])
