"""Small projects for tests of planning: made datasets, the project's own methods, papers and claims."""

from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from fedrec.plan.project import Project
from tests.conftest import ROOT, entry

QUICK = ["popularity", "draw-counter"]
AUDIT = {"methods": QUICK, "switches": ["pool"], "uploads": ["fedmf"]}
"""An audit that trains steps and attacks uploads."""
FILES = {
    "catalogue": "datasets.yaml",
    "protocol_file": "protocols.yaml",
    "method_file": "methods.yaml",
    "paper_folder": "papers",
    "claim_file": "claims.yaml",
    "tuning_file": "tuning.yaml",
    "found_file": "found.yaml",
}


def content_of(path: str) -> dict[str, Any]:
    """A file of the project's configuration, to be changed at will."""
    return deepcopy(_content(path))


@cache
def _content(path: str) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load((ROOT / "config" / path).read_text(encoding="utf-8"))
    return content


def made_entries() -> dict[str, Any]:
    """Two datasets that are available, one that is not, and the demonstration."""
    return {
        "alpha": entry("alpha.csv"),
        "beta": entry("beta.csv", papers=["fedrap"]),
        "gamma": entry("gamma.csv"),
        "demo": content_of("datasets.yaml")["demo"],
    }


def configuration(**changes: Any) -> dict[str, Any]:
    """A configuration of the two datasets and two quick methods; its audit trains steps and attacks uploads."""
    small = {"datasets": ["alpha", "beta"], "methods": QUICK, "demo_rounds": 2, "rounds": 2, "audit": AUDIT}
    return content_of("config.yaml") | small | changes


class Made:
    """A folder with a configuration of its own, of which projects are loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "config/papers").mkdir(parents=True)
        (folder / "mirror").mkdir()
        for path in (ROOT / "config").rglob("*.yaml"):
            copy = folder / "config" / path.relative_to(ROOT / "config")
            copy.write_bytes(path.read_bytes())
        for name in ("alpha", "beta"):
            (folder / f"mirror/{name}.csv").write_text("1,1,1,1\n")
        self.set_entries(made_entries())

    def set_entries(self, entries: Mapping[str, Any]) -> None:
        self.write("config/datasets.yaml", yaml.safe_dump(dict(entries), sort_keys=False))

    def write(self, path: str, text: str) -> None:
        (self.folder / path).write_text(text, encoding="utf-8")

    def replace(self, path: str, old: str, new: str) -> None:
        """Edit a file of the configuration."""
        text = (self.folder / path).read_text(encoding="utf-8")
        assert old in text, (path, old)
        self.write(path, text.replace(old, new))

    def project(self, **changes: Any) -> Project:
        return Project.load(configuration(**changes), self.folder, self.folder / "mirror")
