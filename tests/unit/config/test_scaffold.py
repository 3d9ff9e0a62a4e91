"""Methods and datasets that `fedrec new` starts: what is written, what is refused, and that nothing is half done."""

import shutil
import subprocess
import sys

import pytest
import yaml

from fedrec.config import scaffold
from fedrec.config.catalogue import TableFormat, load_catalogue
from fedrec.config.methods import load_methods, resolve
from fedrec.config.modules import MODULE_FOLDERS
from fedrec.config.protocol import OWN
from fedrec.errors import ConfigurationError, StorageError
from tests.conftest import ROOT

TABLE = TableFormat(";", {"user": "Käufer", "item": 'a "b"', "time": "t: #"}, header=True, ids="text")


@pytest.fixture
def project(tmp_path, monkeypatch):
    """A folder with a configuration, the first entries of ours, and methods of its own."""
    (tmp_path / "config").mkdir()
    for name, end in (("methods", "\npfedclr:"), ("datasets", "\nml-1m:")):
        text = (ROOT / f"config/{name}.yaml").read_text(encoding="utf-8")
        (tmp_path / f"config/{name}.yaml").write_text(text[: text.index(end)], encoding="utf-8")
    methods = tmp_path / "fedrec/methods"
    methods.mkdir(parents=True)
    for name in ("_template.py", "fedmf.py"):
        shutil.copy(ROOT / "fedrec/methods" / name, methods)
    monkeypatch.setitem(MODULE_FOLDERS, "methods", methods)
    return tmp_path


@pytest.fixture
def entries(project):
    return project / "config/methods.yaml"


def state(folder):
    return {path: path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def refused(call, *arguments, error=ConfigurationError):
    with pytest.raises(error) as raised:
        call(*arguments)
    return str(raised.value)


def test_a_method_is_a_file_and_an_entry_behind_all_others(project, entries):
    old = entries.read_text(encoding="utf-8")
    file = scaffold.new_method("my-mf", entries)
    assert file == project / "fedrec/methods/my_mf.py"
    assert "\nMETHOD = MyMf\n" in file.read_text(encoding="utf-8")
    text = entries.read_text(encoding="utf-8")
    assert text.startswith(old)
    assert list(yaml.safe_load(text)) == [*yaml.safe_load(old), "my-mf"]


def test_its_settings_claim_no_paper(entries):
    scaffold.new_method("my-mf", entries)
    _, sources, paper = resolve(load_methods(entries), "my-mf", None, "any")
    assert paper == OWN
    assert set(sources.values()) == {"ours", "taken from fedmf"}
    assert sources["d"] == "taken from fedmf"


@pytest.mark.parametrize("name", ["a", "client", "a-very-long-name-of-forty-letters-at-mos"])
def test_the_file_passes_the_linters(entries, name):
    file = scaffold.new_method(name, entries)
    code = file.read_text(encoding="utf-8")
    compile(code, str(file), "exec")
    for check in (["check"], ["format", "--check"]):
        words = [
            sys.executable,
            "-m",
            "ruff",
            *check,
            "--config",
            ROOT / "pyproject.toml",
            "--no-cache",
            file,
        ]
        outcome = subprocess.run(words, capture_output=True, text=True)
        assert outcome.returncode == 0, outcome.stdout + outcome.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("MyMF", "'MyMF' is not a valid name. .* Did you mean 'mymf'?"),
        ("my_mf", "Did you mean 'my-mf'?"),
        ("2mf", "Did you mean 'mf'?"),
        ("lambda", "and no Python keyword."),
        ("größe", "Start with a lower-case letter"),
        ("../mf", "Did you mean 'mf'?"),
        ("-", "is not a valid name."),
        ("", "is not a valid name."),
        ("a" * 41, "40 at most"),
        ("fedmf", "the method 'fedmf' exists already, in "),
        ("plgc", "'plgc' is a plug-in."),
        ("fedncf", "is missing. Write the file, or remove the entry and type the command again."),
    ],
)
def test_names_that_cannot_be_are_refused_and_nothing_is_written(project, entries, name, said):
    before = state(project)
    message = refused(scaffold.new_method, name, entries)
    assert all(part in message for part in said.split(" .* ")), message
    assert state(project) == before


def test_a_file_without_an_entry_is_not_overwritten(project, entries):
    (project / "fedrec/methods/mine.py").write_text("mine")
    assert "has no entry for it." in refused(scaffold.new_method, "mine", entries)
    assert (project / "fedrec/methods/mine.py").read_text() == "mine"


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("failing", [1, 2])
@pytest.mark.parametrize("error", [OSError(30, "Read-only file system"), KeyboardInterrupt()], ids=type)
def test_a_write_that_fails_leaves_nothing_behind(project, entries, monkeypatch, failing, late, error):
    """The first or the second file cannot be written, or it is interrupted just behind that."""
    before, write, calls = state(project), scaffold.write_text, []

    def breaks(path, text):
        calls.append(path)
        if late or len(calls) != failing:
            write(path, text)
        if len(calls) == failing:
            raise error

    monkeypatch.setattr(scaffold, "write_text", breaks)
    if isinstance(error, OSError):
        assert "Read-only file system). Nothing was changed." in refused(
            scaffold.new_method, "mine", entries, error=StorageError
        )
    else:
        with pytest.raises(KeyboardInterrupt):
            scaffold.new_method("mine", entries)
    assert state(project) == before


def test_a_method_is_not_written_into_an_installed_copy_nor_into_another_project(
    project, entries, monkeypatch
):
    monkeypatch.setitem(MODULE_FOLDERS, "methods", project / "lib/site-packages/fedrec/methods")
    assert "pip install --editable ." in refused(scaffold.new_method, "mine", entries)
    monkeypatch.setitem(MODULE_FOLDERS, "methods", ROOT / "fedrec/methods")
    assert "Activate the environment of the project" in refused(scaffold.new_method, "mine", entries)


def test_ends_of_lines_and_links_stay(project, entries):
    text = entries.read_bytes().rstrip(b"\n").replace(b"\n", b"\r\n")
    real = project / "real.yaml"
    real.write_bytes(text)
    entries.unlink()
    entries.symlink_to(real)
    scaffold.new_method("mine", entries)
    assert entries.is_symlink()
    assert real.read_bytes().startswith(text + b"\r\n")
    assert b"\n" not in real.read_bytes().replace(b"\r\n", b"")
    assert "mine" in load_methods(entries)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("- a\n", "must contain keys and values (`key:"),
        ("a: [\n", "not valid YAML"),
        ("a: 1\n", "an entry for 'mine' cannot be added: "),
    ],
)
def test_a_file_that_cannot_take_an_entry_is_left_alone(entries, text, said):
    entries.write_text(text)
    assert said in refused(scaffold.new_method, "mine", entries)
    assert entries.read_text() == text
    entries.unlink()
    assert "Start the command in the project's top folder, or give the path of your own file." in refused(
        scaffold.new_method, "mine", entries
    )


def test_a_dataset_is_an_entry_that_reads_its_file_where_it_lies(project):
    path = project / "config/datasets.yaml"
    old = path.read_text(encoding="utf-8")
    scaffold.new_dataset("mine", path, project / "data/my.csv", TABLE, ["a remark"])
    scaffold.new_dataset("theirs", path, ROOT / "my.csv", TABLE)
    text = path.read_text(encoding="utf-8")
    assert text.startswith(old)
    assert "      # a remark\n" in text
    catalogue = load_catalogue(path)
    assert catalogue["mine"].interactions.format == TABLE
    assert catalogue["mine"].interactions.written == "data/my.csv"
    assert catalogue["theirs"].interactions.written == str(ROOT / "my.csv")
    assert catalogue["mine"].papers == ()


@pytest.mark.parametrize(
    ("name", "file", "said"),
    [
        (
            "ml-100k",
            "my.csv",
            "already has an entry 'ml-100k'.",
        ),
        ("My", "my.csv", "Did you mean 'my'?"),
        ("mine", "my data.csv", "Rename or move the file."),
    ],
)
def test_a_dataset_that_cannot_be_is_refused(project, name, file, said):
    before = state(project)
    assert said in refused(
        scaffold.new_dataset, name, project / "config/datasets.yaml", project / file, TABLE
    )
    assert state(project) == before


def test_a_catalogue_that_cannot_be_written_is_an_error(project, monkeypatch):
    def breaks(*_):
        raise OSError(13, "Permission denied")

    monkeypatch.setattr(scaffold, "write_text", breaks)
    said = refused(
        scaffold.new_dataset,
        "mine",
        project / "config/datasets.yaml",
        project / "my.csv",
        TABLE,
        error=StorageError,
    )
    assert "cannot be written (Permission denied)" in said
