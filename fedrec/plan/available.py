"""Which data are available here, asked before the workflow plans its jobs.

A dataset that is not available (licence page, no network) is left out of the targets that
cover many datasets, and listed there with the reason; asked for by name it is an error.
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
# Servers that refuse the question may still answer the download.
_REFUSALS_OF_HEAD = (403, 405, 501)


def check_mirror(mirror: Path | None) -> None:
    """Raise `ConfigurationError` for a mirror that is no folder: nothing would be found there."""
    if mirror is not None and not mirror.is_dir():
        raise ConfigurationError(
            f"the mirror {mirror} is no folder here. Name the folder of local copies by FEDREC_MIRROR, "
            "--mirror or `mirror` of the configuration, or none."
        )


def why_unavailable(dataset: Dataset, raw: Path, mirror: Path | None, home: Path = Path()) -> str | None:
    """Why `dataset` is not available, in a stable sentence; None where it is."""
    file = dataset.interactions
    return None if file is None else why_file_unavailable(file, raw, mirror, home)


def availability(dataset: Dataset, raw: Path, mirror: Path | None, home: Path = Path()) -> str:
    """Whether `dataset` is `local`, `can be fetched`, or is `unavailable: ` and why."""
    reason = why_unavailable(dataset, raw, mirror, home)
    if reason is not None:
        return f"unavailable: {reason}"
    file = dataset.interactions
    return "at hand" if file is None or is_local(file, raw, mirror, home) else "can be fetched"


def why_split_unavailable(
    dataset: Dataset, paper: str, raw: Path, mirror: Path | None, home: Path = Path()
) -> str | None:
    """Why `dataset` cannot be split as `paper` did; None where it can.

    A paper's own row order decides its ties: without it the split would be another one.
    """
    reason = why_unavailable(dataset, raw, mirror, home)
    if reason is None and paper in dataset.row_orders:
        return why_file_unavailable(dataset.row_orders[paper], raw, mirror, home)
    return reason


def why_not_at_one_time(dataset: Dataset, protocol: Protocol) -> str | None:
    """Why `dataset` cannot be split at the one time of `protocol`; None where it can, or there is no cut."""
    if protocol.cut is None or dataset.time == "file":
        return None
    return "it has no times, and the protocol splits all users at one time"


def why_file_unavailable(file: RawFile, raw: Path, mirror: Path | None, home: Path = Path()) -> str | None:
    """Why `file` is not available; None where it is on this machine or a source answers.

    Packages count as available: whether a package index answers is only known by trying.
    """
    if is_local(file, raw, mirror, home) or any(source.kind == "package" for source in file.sources):
        return None
    urls = [source.location for source in file.sources if source.kind == "url"]
    if not urls and file.licence_page:
        return f"{file.path} is not at hand; its licence must be accepted first ({file.licence_page})"
    if not urls:
        return (
            f"{file.written} is not at hand: neither in the project's folder nor in results/raw or a mirror"
        )
    if any(_answers(url) for url in urls):
        return None
    hosts = sorted({urlparse(url).netloc for url in urls})
    return f"{file.path} is not at hand and {', '.join(hosts)} cannot be reached"


def is_local(file: RawFile, raw: Path, mirror: Path | None, home: Path = Path()) -> bool:
    """Whether `file` lies where its entry says, from the folder `home`, below `raw`, or in the mirror."""
    mirrored = [source.location for source in file.sources if source.kind == "mirror"]
    return located(file, raw, home) is not None or (
        mirror is not None and any((mirror / path).is_file() for path in mirrored)
    )


def without(artefact: Artefact, unavailable: Mapping[str, str]) -> dict[str, str]:
    """Why datasets of an artefact, or splits of them that it shows (`dataset/protocol`), are unavailable."""
    protocols = dict.fromkeys((f"published-{artefact.paper}", *artefact.protocols))
    own = [
        name
        for dataset in artefact.datasets
        for name in (dataset, *(f"{dataset}/{protocol}" for protocol in protocols))
    ]
    return {name: unavailable[name] for name in own if name in unavailable}


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
    """Whether something answers at `url`; asked once per process."""
    if urlparse(url).scheme == "file":
        return Path(url2pathname(urlparse(url).path)).is_file()
    # Imported here: most plans need no network, and requests takes a while to import.
    import requests

    try:
        status = requests.head(url, timeout=_TIMEOUT_SECONDS, allow_redirects=True).status_code
    except requests.RequestException:
        return False
    return status < 400 or status in _REFUSALS_OF_HEAD
