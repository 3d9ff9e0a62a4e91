import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from fedrec import __version__
from fedrec.cli.main import main
from fedrec.data.split import TRAIN, read_split
from fedrec.plan.fingerprint import run_fingerprint
from tests.conftest import ROOT, entry


@pytest.fixture
def project(tmp_path, write_catalogue, monkeypatch):
    """A catalogue of one small dataset, its mirror, and the folder all is done in."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mirror").mkdir()
    rows = [(user, (user * 5 + step * 3) % 230, 4, step) for user in range(12) for step in range(8)]
    (tmp_path / "mirror/alpha.csv").write_text("".join(f"{u},{i},{r},{t}\n" for u, i, r, t in rows))
    (tmp_path / "mirror/rest.csv").write_text("".join(f"99,{item},1,0\n" for item in range(230)))
    monkeypatch.setenv("FEDREC_MIRROR", str(tmp_path / "mirror"))
    return write_catalogue(alpha=entry("alpha.csv"), beta=entry("beta.csv"))


def run(*arguments):
    return main([str(argument) for argument in arguments])


def test_the_commands_in_a_row_train_a_run(project, tmp_path, capsys):
    # Few items were seen, so the lists must be short.
    protocols = (ROOT / "config/protocols.yaml").read_text().replace("candidates: 99", "candidates: 5")
    (tmp_path / "protocols.yaml").write_text(protocols)
    catalogue = ("--catalogue", project)
    assert run("fetch", "alpha", *catalogue, "--raw", "raw") == 0
    assert run("prepare", "alpha", *catalogue, "--raw", "raw", "--out", "data/alpha") == 0
    for protocol in ("clean", "published-pfedrec"):
        assert (
            run("split", "--data", "data/alpha", "--protocol", protocol, "--protocols", "protocols.yaml") == 0
        )
    assert read_split(tmp_path / "data/alpha/clean").dataset == "alpha"
    assert run("describe", "--data", "data/alpha", "--protocol", "clean", "--out", "alpha.json") == 0
    assert json.loads((tmp_path / "alpha.json").read_text())["splits"]["clean"]["users"] == 12
    train = ("train", "--data", "data/alpha", "--methods", ROOT / "config/methods.yaml", "--set", "rounds=2")
    assert run(*train, "--method", "fedmf", "--protocol", "clean", "--out", "run", "--engine", "loop") == 0
    assert {path.name for path in (tmp_path / "run").iterdir()} == {
        "curve.parquet", "ranks.parquet", "timing.parquet", "state.safetensors", "run.json",
    }  # fmt: skip
    found = json.loads((tmp_path / "run/run.json").read_text())
    assert (found["settings"]["rounds"], found["sources"]["rounds"], found["paper"]) == (2, "user", "pfedclr")
    assert found["code"] == run_fingerprint("fedmf", "loop")
    assert found["also_settings_of"] == []
    variant = ("--method", "fedmf[rounds=1, d=08]", "--protocol", "clean", "--out", "variant")
    assert run(*train[:-2], *variant) == 0
    found = json.loads((tmp_path / "variant/run.json").read_text())
    assert (found["method"], found["settings"]["d"], found["sources"]["d"]) == (
        "fedmf[d=8][rounds=1]",
        8,
        "user",
    )
    assert run(*train, "--method", "fedmf", "--protocol", "published", "--out", "x") == 1
    said = capsys.readouterr().err
    assert (
        "--protocol published: data/alpha has no split 'published-pfedclr'. It has: clean, published-pfedrec."
        in said
    )
    assert "fedrec split --data data/alpha --protocol published-pfedclr" in said
    wrong = ("--method", "fedmf", "--protocol", "clean", "--out", "x", "--paper", "pfedclrr")
    assert run(*train, *wrong) == 1
    assert "unknown paper 'pfedclrr'. Did you mean 'pfedclr'?" in capsys.readouterr().err
    assert not (tmp_path / "x").exists()
    # A paper may have a protocol and nothing else; a name is right, and its split is what is missing.
    known = protocols.replace("published-pfedrec:", "published-mine:")
    (tmp_path / "own").mkdir()
    (tmp_path / "own/protocols.yaml").write_text(known)
    shutil.copy(ROOT / "config/methods.yaml", tmp_path / "own")
    own = ("train", "--data", "data/alpha", "--methods", "own/methods.yaml", "--method", "fedmf")
    assert run(*own, "--protocol", "published", "--out", "x", "--paper", "mine") == 1
    assert "data/alpha has no split 'published-mine'" in capsys.readouterr().err
    assert run(*own, "--protocol", "clean", "--out", "x", "--engine", "batch") == 1
    assert "unknown engine 'batch'. Did you mean 'batched'?" in capsys.readouterr().err
    assert run("datasets", *catalogue, "--raw", "raw") == 0
    listed = capsys.readouterr().out
    assert "alpha            local" in listed
    assert "beta             unavailable" in listed


@pytest.fixture
def prepared(project, tmp_path):
    """Prepares the small dataset, with a thirteenth user that left at once; protocols have short lists."""
    with (tmp_path / "mirror/alpha.csv").open("a") as stream:
        stream.write("12,0,4,0\n12,1,4,0\n12,2,4,0\n")

    def prepare(*catalogue):
        assert run("prepare", "alpha", *catalogue, "--raw", "raw", "--out", "data/alpha") == 0

    text = (ROOT / "config/protocols.yaml").read_text().replace("candidates: 99", "candidates: 5")
    (tmp_path / "protocols.yaml").write_text(text)
    assert run("fetch", "alpha", "--catalogue", project, "--raw", "raw") == 0
    prepare("--catalogue", project)
    return prepare


SPLIT_AT_ONE_TIME = (
    "split",
    "--data",
    "data/alpha",
    "--protocol",
    "temporal",
    "--protocols",
    "protocols.yaml",
)


@pytest.mark.usefixtures("prepared")
def test_a_split_at_one_time_is_made_described_and_trained_on(tmp_path, capsys):
    assert run(*SPLIT_AT_ONE_TIME) == 0
    said = "alpha, temporal: left out 1 users with too few rows before or after the cut time"
    assert said in capsys.readouterr().err
    split = read_split(tmp_path / "data/alpha/temporal")
    # All others have a row at each of the times 0 to 7. Of 99 rows 75 lie before the time 6, and 87 before 7.
    assert sorted({*split.user.tolist()}) == list(range(12))
    assert split.dropped.tolist() == [12]
    assert len(split.pairs_of(TRAIN)[0]) == 12 * 5
    assert run("describe", "--data", "data/alpha", "--protocol", "temporal", "--out", "alpha.json") == 0
    assert json.loads((tmp_path / "alpha.json").read_text())["splits"]["temporal"]["users"] == 12
    methods = ("--methods", ROOT / "config/methods.yaml", "--set", "rounds=2", "--protocol", "temporal")
    for method in ("fedmf", "popularity", "fism"):
        assert run("train", "--data", "data/alpha", *methods, "--method", method, "--out", method) == 0
        summary = json.loads((tmp_path / method / "run.json").read_text())
        assert (summary["protocol"]["name"], summary["protocol"]["cut"]) == ("temporal", 0.8)
        assert 0 <= summary["metrics"]["best_validation"]["test"]["hr@10"] <= 1


def test_without_times_a_split_at_one_time_is_refused(prepared, tmp_path, write_catalogue, capsys):
    prepared("--catalogue", write_catalogue(alpha=entry("alpha.csv", time="constant")))
    assert run(*SPLIT_AT_ONE_TIME) == 1
    assert (
        "alpha, temporal: the interactions have no times, so no cut time exists." in capsys.readouterr().err
    )
    assert not (tmp_path / "data/alpha/temporal").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fetch", "alfa"), "fedrec: unknown dataset 'alfa'. Did you mean 'alpha'?"),
        (
            ("fetch", "beta"),
            "fedrec: beta.csv: could not be fetched. fedrec tried, in this order:\n  1. mirror beta.csv: ",
        ),
        (("prepare", "alpha", "--out", "data"), "Put it there, or type `fedrec fetch"),
    ],
)
def test_an_error_is_one_message_and_leaves_nothing(project, tmp_path, capsys, arguments, said):
    before = sorted(tmp_path.rglob("*"))
    assert run(*arguments, "--catalogue", project) == 1
    assert said in capsys.readouterr().err
    assert [path for path in sorted(tmp_path.rglob("*")) if path.is_file()] == [
        path for path in before if path.is_file()
    ]


def test_the_command_and_the_module_are_one():
    outcome = subprocess.run(
        [sys.executable, "-m", "fedrec", "--version"], capture_output=True, text=True, check=True
    )
    assert outcome.stdout == f"fedrec {__version__}\n"


def test_training_needs_neither_polars_nor_jsonschema_nor_pooch():
    program = (
        "import sys\n"
        "sys.modules |= dict.fromkeys(('polars', 'jsonschema', 'pooch', 'snakemake', 'matplotlib', 'requests'))\n"
        "import fedrec.runs.train\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env=os.environ, cwd=ROOT)


@pytest.mark.parametrize(
    "content", ["1,2,3,4\n1,2,x,4\n", "1,2\n", "1,2,3,4\n", "1,2,3,4\n1,3,3,4\n1,4,3,4\n"]
)
def test_bad_data_is_one_message_and_leaves_no_split(project, tmp_path, capsys, content):
    (tmp_path / "mirror/alpha.csv").write_text(content)
    messages = (
        "alpha.csv, line 2: rating is 'x', expected a number",
        "has no column 2; its first line has 2",
        "no user has 3 rows",
        "User 0 has 0 of 3",
    )
    assert run("fetch", "alpha", "--catalogue", project, "--raw", "raw") == 0
    prepared = run("prepare", "alpha", "--catalogue", project, "--raw", "raw", "--out", "data/alpha")
    protocols = ("--protocols", ROOT / "config/protocols.yaml")
    assert prepared or run("split", "--data", "data/alpha", "--protocol", "clean", *protocols) == 1
    error = capsys.readouterr().err
    assert any(message in error for message in messages), error
    assert not (tmp_path / "data/alpha/clean").exists()


def test_a_reader_that_has_enough_gets_no_traceback():
    command = f"{shlex.quote(sys.executable)} -m fedrec datasets | true"
    outcome = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, cwd=ROOT)
    assert outcome.stderr == ""


def test_a_folder_where_a_file_is_needed_is_one_message(tmp_path, capsys):
    assert main(["build", "demo_comparison", "--plan", str(tmp_path)]) == 1
    assert f"{tmp_path}: is a folder. Give the path of a file." in capsys.readouterr().err


def test_no_permission_is_one_message(tmp_path, monkeypatch, capsys):
    def refused(*_arguments, **_options):
        raise PermissionError(13, "Permission denied", str(tmp_path / "split.parquet"))

    monkeypatch.setattr("fedrec.runs.train.train", refused)
    words = ["--data", "d", "--method", "fedmf", "--protocol", "clean", "--out", "o"]
    assert main(["train", *words]) == 1
    assert "split.parquet: permission denied. Change its permissions" in capsys.readouterr().err


def test_a_package_that_is_missing_is_named_with_what_to_do(tmp_path):
    words = ["train", "--data=data", "--method=fedmf", "--protocol=clean", f"--out={tmp_path / 'run'}"]
    code = (
        f"import sys; sys.modules['torch'] = None; from fedrec.cli.main import main; sys.exit(main({words}))"
    )
    outcome = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert outcome.returncode == 1
    assert outcome.stderr.startswith(
        f"fedrec: this command needs the package torch, which {sys.executable} does not have. Install"
    )
    assert f"{sys.executable} -m pip install --constraint constraints.txt --editable .\n" in outcome.stderr
    assert outcome.stderr.count("\n") == 1


def test_a_word_that_the_locale_cannot_read_is_refused_before_anything_is_done(capsys):
    with pytest.raises(SystemExit):
        run("train", "--data", "data/alpha", "--out", "r\udcc3\udcbc")
    said = capsys.readouterr().err
    assert "'r\\udcc3\\udcbc' is not valid text in this locale" in said
    assert "Set PYTHONUTF8=1" in said
