"""What an edit re-trains: fingerprints follow what code does, not what it says."""

import shutil

import pytest

from fedrec.config import modules
from fedrec.config.methods import load_methods
from fedrec.plan import fingerprint
from fedrec.plan.fingerprint import NEUTRAL, closure, code_fingerprint, run_fingerprint
from tests.conftest import ROOT
from tests.core import core_and

NAMES = [name for name in load_methods(ROOT / "config/methods.yaml") if not name.startswith("+")] + [
    "fedmf+plgc"
]
IN_ONE_PLACE = {"mf", "ncf", "lightgcn", "centrap", "ease", "item-knn", "ials", "bpr-mf"}
FEDERATED = set(NAMES) - IN_ONE_PLACE - {"popularity", "draw-counter"}


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A copy of the package that fingerprints are taken of."""
    copy = tmp_path / "fedrec"
    shutil.copytree(ROOT / "fedrec", copy, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.setattr(fingerprint, "_PACKAGE", copy)
    monkeypatch.setattr(modules, "MODULE_FOLDERS", {"methods": copy / "methods", "plugins": copy / "plugins"})
    return copy


def retrained(package, path, edit, *more_paths):
    """The methods whose runs an edit of a file, or the same edit of several, would train again."""
    before = {name: run_fingerprint(name) for name in NAMES}
    for one in (path, *more_paths):
        file = package / one
        text = file.read_text()
        changed = edit(text)
        assert changed != text, one
        file.write_text(changed)
    return {name for name in NAMES if run_fingerprint(name) != before[name]}


def more(text):
    return text + "\n_ANOTHER = 1\n"


def in_other_words(text):
    """The same code: another docstring, comment and docstring of an attribute, another error and log message."""
    _, _, rest = text.split('"""', 2)
    rest = rest.replace('Error(f"', 'Error(f"Other words. ').replace('Error("', 'Error("Other words. ')
    return f'"""Other words."""{rest}\n# A comment.\n"""About what is above."""\n'


def test_prose_re_trains_nothing(package):
    paths = [
        "methods/fedrap.py",
        "federation/engines/batched/engine.py",
        "federation/federation.py",
        "runs/training.py",
        "evaluation/metrics.py",
        "random/with_numpy.py",
        "federation/model/parameters.py",
    ]
    assert retrained(package, paths[0], in_other_words, *paths[1:]) == set()


def test_what_decides_no_number_of_a_run_re_trains_nothing(package):
    paths = [
        "progress.py",
        "errors.py",
        "cli/main.py",
        "config/catalogue.py",
        "plan/targets.py",
        "files/parquet.py",
        "reporting/build.py",
        "reporting/figures/sweep.py",
        "reporting/tables/metrics.py",
        "audit/significance.py",
        "federation/engines/loop.py",
        "native/cache.py",
        "native/compiler_process.py",
        "federation/observe/recorder.py",
        "federation/privacy/accountant.py",
        "federation/model/citation.py",
    ]
    assert retrained(package, paths[0], more, *paths[1:]) == set()


def test_no_file_of_reporting_or_audit_is_part_of_a_run():
    modules_of_runs = {module for name in NAMES for module in fingerprint.run_modules(name, "batched")}
    assert not {
        module for module in modules_of_runs if module.startswith(("fedrec.reporting", "fedrec.audit"))
    }
    assert "fedrec.federation.engines.loop" not in modules_of_runs


def test_editing_a_methods_arithmetic_re_trains_that_method_and_who_uses_it(package):
    assert retrained(package, "methods/pfedclr.py", more) == {"pfedclr"}
    # CentRAP trains FedRAP's model in one place.
    assert retrained(package, "methods/fedrap.py", more) == {"fedrap", "centrap"}
    assert retrained(package, "plugins/plgc.py", more) == {"fedmf+plgc"}


def test_editing_the_engine_re_trains_all_that_is_federated(package):
    assert retrained(package, "federation/engines/batched/engine.py", more) == FEDERATED


LIBRARY = "federation/engines/fused/backend/library/"


@pytest.mark.parametrize(
    "file", core_and(["gpu.cuh", "cpu.c"], ["common.c", "tiles.c", "floored.c", "most_of_lanes.cuh"])
)
def test_editing_the_c_of_kernels_re_trains_all_whose_training_is_compiled(package, file):
    kernels = FEDERATED | {"mf", "ncf"}
    assert retrained(package, LIBRARY + file, lambda text: text + "int another;\n") == kernels
    assert retrained(package, LIBRARY + file, lambda text: f"/* A\n comment. */\n\n{text}") == set()


def test_editing_the_draws_or_the_metrics_re_trains_everything(package):
    assert retrained(package, "federation/draws.py", more) == set(NAMES)
    assert retrained(package, "evaluation/metrics.py", more) == set(NAMES)


def test_another_engine_is_another_fingerprint(package):
    assert run_fingerprint("fedmf", "loop") != run_fingerprint("fedmf", "batched")
    before = run_fingerprint("fedmf", "loop")
    path = package / "federation/engines/loop.py"
    path.write_text(more(path.read_text()))
    assert run_fingerprint("fedmf", "loop") != before


def test_facts_that_tables_print_are_no_arithmetic(package):
    path = package / "methods/fedmf.py"
    text = path.read_text()
    path.write_text(f'{text}\n\nclass Another:\n    """A."""\n\n    cost = "O(1)"\n    share = 1\n')
    before = run_fingerprint("fedmf")
    path.write_text(f'{text}\n\nclass Another:\n    """B."""\n\n    cost = "O(n)"\n    share = 1\n')
    assert run_fingerprint("fedmf") == before
    path.write_text(f'{text}\n\nclass Another:\n    """B."""\n\n    cost = "O(n)"\n    share = 2\n')
    assert run_fingerprint("fedmf") != before


def made_package(tmp_path, monkeypatch, **files):
    package = tmp_path / "fedrec"
    package.mkdir()
    for name, text in files.items():
        (package / f"{name}.py").write_text(text)
    monkeypatch.setattr(fingerprint, "_PACKAGE", package)
    return package


def test_a_fingerprint_follows_imports_and_nothing_else(tmp_path, monkeypatch):
    package = made_package(
        tmp_path, monkeypatch, a="from fedrec import b\nfrom fedrec.progress import bar\n", b="value = 1\n", c="", progress="",
    )  # fmt: skip
    before = code_fingerprint("fedrec.a")
    for name in ("c", "progress"):
        (package / f"{name}.py").write_text("other = 12\n")
        assert code_fingerprint("fedrec.a") == before
    both = code_fingerprint("fedrec.a", "fedrec.c")
    assert both == code_fingerprint("fedrec.c", "fedrec.a") != before
    (package / "b.py").write_text("value = 22\n")
    assert code_fingerprint("fedrec.a") != before
    assert code_fingerprint("fedrec.a", "fedrec.c") != both


def test_imports_of_type_checkers_are_not_followed(tmp_path, monkeypatch):
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from fedrec import b\n"
    made_package(tmp_path, monkeypatch, a=typed, b="value = 1\n")
    assert closure(["fedrec.a"], ()) == ["fedrec.a"]


def test_the_code_of_data_is_what_it_imports():
    split = closure(["fedrec.data.split"], NEUTRAL)
    assert {"fedrec.data.split", "fedrec.data.candidates", "fedrec.random.with_numpy"} <= set(split)
    assert not {"fedrec.data.prepare", "fedrec.data.fetch", "fedrec.config.document"} & set(split)
    assert "fedrec.data.split" not in closure(["fedrec.data.prepare"], NEUTRAL)
