"""Default files of the configuration: a built package carries them, a folder's own file comes first."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedrec.cli.main import main
from fedrec.config import default_files
from fedrec.config.catalogue import load_catalogue
from fedrec.config.default_files import file_or_default
from fedrec.config.methods import load_methods
from tests.conftest import ROOT


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    """A folder without a configuration."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_built_package_has_every_default_file_and_every_other_file_of_data(tmp_path):
    where = ["--build-base", str(tmp_path / "build"), "--build-lib", str(tmp_path / "lib")]
    words = ["-W", "error", "setup.py", "-q", "egg_info", "--egg-base", str(tmp_path), "build", *where]
    subprocess.run([sys.executable, *words], cwd=ROOT, check=True, capture_output=True)
    package = tmp_path / "lib/fedrec"
    defaults = {str(path.relative_to(ROOT / "config")): path for path in ROOT.glob("config/**/*.yaml")}
    assert len(defaults) > 10
    for name, path in defaults.items():
        assert (package / "config/defaults" / name).read_bytes() == path.read_bytes()
    data = [path for path in ROOT.glob("fedrec/**/*") if path.is_file() and path.suffix != ".pyc"]
    assert {str(path.relative_to(ROOT / "fedrec")) for path in data} == {
        str(path.relative_to(package))
        for path in package.glob("**/*")
        if path.is_file() and "defaults" not in path.parts
    }
    # It reads its own defaults, and not those of the project that it was built from.
    asked = "from fedrec.config.default_files import DEFAULTS; print(DEFAULTS)"
    answer = subprocess.run(
        [sys.executable, "-c", asked],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(package.parent)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert answer.stdout.strip() == str(package / "config/defaults")


def test_a_folders_own_file_comes_before_the_default_and_no_other_file_has_one(elsewhere):
    catalogue, methods = Path("config/datasets.yaml"), Path("config/methods.yaml")
    assert file_or_default(methods) == ROOT / methods
    assert "demo" in load_catalogue(catalogue)
    (elsewhere / "config").mkdir()
    (elsewhere / catalogue).write_text("mine: {title: mine, synthetic: {users: 9, items: 9, seed: 0}}\n")
    assert file_or_default(catalogue) == catalogue
    assert file_or_default(catalogue, elsewhere) == elsewhere / catalogue
    for path in (
        Path("methods.yaml"),
        Path("other/methods.yaml"),
        elsewhere / methods,
        Path("config/my.yaml"),
    ):
        assert file_or_default(path) == path


@pytest.mark.usefixtures("elsewhere")
def test_what_searches_found_goes_with_methods_of_ones_own_unless_there_is_a_file_of_it():
    own = Path("config/methods.yaml")
    own.parent.mkdir()
    own.write_bytes((ROOT / own).read_bytes())
    assert any(entry.findings for entry in load_methods(own).values())
    Path("config/found.yaml").write_text("{}\n")
    assert not any(entry.findings for entry in load_methods(own).values())


def test_a_dataset_of_ones_own_is_trained_in_any_folder(elsewhere, capsys):
    rows = [f"{user},{(user * 97 + k * 5) % 400},{user + 1000 * k}" for user in range(60) for k in range(8)]
    (elsewhere / "shop.csv").write_text("\n".join(["user,item,timestamp", *rows]))
    assert main(["new", "dataset", "shop", "shop.csv"]) == 0
    printed = capsys.readouterr().out
    assert "Wrote the entry shop in config/datasets.yaml. This file is new" in printed
    assert "snakemake" not in printed
    commands = [line.split()[1:] for line in printed.splitlines() if line.startswith("    fedrec ")]
    assert [words[0] for words in commands] == ["prepare", "split", "train"]
    commands[-1][-1] = "rounds=1"
    for words in commands:
        assert main(words) == 0
    assert (elsewhere / "runs/shop/run.json").is_file()
    assert main(["new", "dataset", "shop2", "shop.csv"]) == 0
    assert "This file is new: a copy of fedrec's catalogue with your entry" not in capsys.readouterr().out
    assert {"demo", "shop", "shop2"} <= set(load_catalogue(Path("config/datasets.yaml")))


@pytest.mark.usefixtures("elsewhere")
def test_a_folder_without_a_project_says_which_files_are_fedrecs_and_what_needs_more(capsys):
    assert main(["check"]) == 0
    assert "so fedrec uses its own: config/config.yaml, config/datasets.yaml, " in capsys.readouterr().out
    assert main(["run", "--cores", "1"]) == 1
    assert "Start `fedrec run` in the top folder of a clone of the project." in capsys.readouterr().err


def test_the_defaults_of_a_checkout_are_its_own_files():
    assert default_files.DEFAULTS == ROOT / "config"
