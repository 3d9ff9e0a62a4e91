"""Check which data are available here, before the workflow plans its jobs.

A dataset can be unavailable because of a licence page, or without a network. Targets that cover many
datasets then leave it out and list it with the reason. If the user names the dataset, it is an error.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from urllib.parse import urlparse
from urllib.request import url2pathname

from fedrec.config.catalogue import Dataset, RawFile
from fedrec.config.papers import Artefact
from fedrec.config.protocol import Protocol, paper_of
from fedrec.data.locate import located
from fedrec.errors import ConfigurationError
from fedrec.plan.layouts import Layout

_TIMEOUT_SECONDS = 5
# A server that refuses a HEAD request may still serve the download.
_REFUSALS_OF_HEAD = (403, 405, 501)


def check_mirror(mirror: Path | None) -> None:
    """Raise `ConfigurationError` for a mirror that is not a folder."""
    if mirror is not None and not mirror.is_dir():
        raise ConfigurationError(
            f"the mirror {mirror} is not a folder here. Give the folder with local copies as FEDREC_MIRROR, "
            "--mirror or `mirror` in the configuration, or unset it."
        )


def why_unavailable(dataset: Dataset, raw: Path, mirror: Path | None, home: Path = Path()) -> str | None:
    """Reason why `dataset` is unavailable, always in the same words; None if it is available."""
    file = dataset.interactions
    return None if file is None else why_file_unavailable(file, raw, mirror, home)


def availability(dataset: Dataset, raw: Path, mirror: Path | None, home: Path = Path()) -> str:
    """State of `dataset`: `local`, `can be fetched`, or `unavailable: ` with the reason."""
    reason = why_unavailable(dataset, raw, mirror, home)
    if reason is not None:
        return f"unavailable: {reason}"
    file = dataset.interactions
    return "local" if file is None or is_local(file, raw, mirror, home) else "can be fetched"


def why_split_unavailable(
    dataset: Dataset, paper: str, raw: Path, mirror: Path | None, home: Path = Path()
) -> str | None:
    """Reason why `dataset` cannot be split as `paper` did; None if it can.

    The row order of the paper's own file decides ties in time. Another order would give another split.
    """
    reason = why_unavailable(dataset, raw, mirror, home)
    if reason is None and paper in dataset.row_orders:
        return why_file_unavailable(dataset.row_orders[paper], raw, mirror, home)
    return reason


def why_not_at_one_time(dataset: Dataset, protocol: Protocol) -> str | None:
    """Reason why `dataset` cannot be split at the cut time of `protocol`; None if it can or without a cut."""
    if protocol.cut is None or dataset.time == "file":
        return None
    return "it has no times, and the protocol splits all users at one time"


def why_file_unavailable(file: RawFile, raw: Path, mirror: Path | None, home: Path = Path()) -> str | None:
    """Reason why `file` is unavailable; None if it is on this machine or a source answers.

    Packages count as available: only a download shows whether a package index answers.
    """
    if is_local(file, raw, mirror, home) or any(source.kind == "package" for source in file.sources):
        return None
    urls = [source.location for source in file.sources if source.kind == "url"]
    if not urls and file.licence_page:
        return f"{file.path} is not local, and its licence must be accepted first ({file.licence_page})"
    if not urls:
        return (
            f"{file.written} is not local: fedrec looked in the project's folder, results/raw and the mirror"
        )
    if any(_answers(url) for url in urls):
        return None
    hosts = sorted({urlparse(url).netloc for url in urls})
    return f"{file.path} is not local, and {', '.join(hosts)} cannot be reached"


def is_local(file: RawFile, raw: Path, mirror: Path | None, home: Path = Path()) -> bool:
    """Whether `file` exists at its entry's path (from the folder `home`), below `raw`, or in the mirror."""
    mirrored = [source.location for source in file.sources if source.kind == "mirror"]
    return located(file, raw, home) is not None or (
        mirror is not None and any((mirror / path).is_file() for path in mirrored)
    )


def without(artefact: Artefact, unavailable: Mapping[str, str]) -> dict[str, str]:
    """The unavailable datasets and splits (`dataset/protocol`) of an artefact, with the reasons."""
    protocols = dict.fromkeys((f"published-{artefact.paper}", *artefact.protocols))
    names = [
        name
        for dataset in artefact.datasets
        for name in (dataset, *(f"{dataset}/{protocol}" for protocol in protocols))
    ]
    return {name: unavailable[name] for name in names if name in unavailable}


def can_be_built(artefact: Artefact, layout: Layout, unavailable: Mapping[str, str]) -> bool:
    """Whether an artefact needs no data, or one of its datasets is available under a protocol it shows."""
    shared = any(paper_of(protocol) is None for protocol in artefact.protocols)
    split_matters = "runs" in layout.needs and not shared
    missing = without(artefact, unavailable)
    return layout.dataless or any(
        dataset not in missing and not (split_matters and f"{dataset}/published-{artefact.paper}" in missing)
        for dataset in artefact.datasets
    )


@cache
def _answers(url: str) -> bool:
    """Whether a server answers at `url`; one request per process."""
    if urlparse(url).scheme == "file":
        return Path(url2pathname(urlparse(url).path)).is_file()
    # Imported here: most plans need no network, and importing requests is slow.
    import requests

    try:
        status = requests.head(url, timeout=_TIMEOUT_SECONDS, allow_redirects=True).status_code
    except requests.RequestException:
        return False
    return status < 400 or status in _REFUSALS_OF_HEAD
