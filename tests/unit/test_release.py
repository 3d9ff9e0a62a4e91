"""The release: its version, its changelog, how to cite it."""

import re
import subprocess
import sys
import zipfile
from datetime import date

import yaml

from fedrec import __version__
from tests.conftest import ROOT

CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
CATEGORIES = {"Added", "Changed", "Deprecated", "Removed", "Fixed", "Security", "Numbers"}


def test_the_changelog_has_the_version_below_what_is_unreleased():
    versions = re.findall(r"^## (\S+)(?: - (.*))?$", CHANGELOG, re.MULTILINE)
    assert versions[0] == ("Unreleased", "")
    assert versions[1][0] == __version__
    days = [date.fromisoformat(day) for _, day in versions[1:]]
    assert days == sorted(days, reverse=True)
    assert set(re.findall(r"^### (.*)$", CHANGELOG, re.MULTILINE)) <= CATEGORIES


def test_the_citation_is_of_this_version():
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    # Those four are what CFF 1.2.0 requires.
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    assert (cited["cff-version"], str(cited["version"])) == ("1.2.0", __version__)
    assert f"## {__version__} - {cited['date-released']}\n" in CHANGELOG
    assert (cited["authors"], cited["license"]) == ([{"name": "The fedrec developers"}], "MIT")


def test_the_wheel_has_types_and_the_c_of_kernels(tmp_path):
    where = ["--build-base", str(tmp_path / "build"), "--build-lib", str(tmp_path / "lib")]
    wheel = ["bdist_wheel", "--bdist-dir", str(tmp_path / "packed"), "--dist-dir", str(tmp_path)]
    words = ["setup.py", "-q", "egg_info", "--egg-base", str(tmp_path), "build", *where, *wheel]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    (packed,) = tmp_path.glob("*.whl")
    assert packed.name.startswith(f"fedrec-{__version__}-")
    names = set(zipfile.ZipFile(packed).namelist())
    assert "fedrec/py.typed" in names
    sources = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "fedrec").rglob("*.c*")
        if path.suffix in (".c", ".cuh")
    }
    assert sources
    assert sources <= names
