from fedrec.plan import fingerprint as provenance
from fedrec.plan.fingerprint import code_hash, sources_of
from tests.conftest import ROOT


def names(module):
    return {path.relative_to(ROOT).as_posix() for path in sources_of(module)}


def test_the_sources_of_a_module_are_what_it_imports_directly_or_not():
    found = names("fedrec.data.split")
    assert {
        "fedrec/data/split.py",
        "fedrec/data/candidates.py",
        "fedrec/random/with_numpy.py",
        "fedrec/errors.py",
    } <= found
    assert (
        not {
            "fedrec/data/prepare.py",
            "fedrec/data/fetch.py",
            "fedrec/config/document.py",
            "fedrec/cli/main.py",
        }
        & found
    )


def test_reading_raw_files_does_not_depend_on_splitting_them():
    assert not {"fedrec/data/split.py", "fedrec/config/protocol.py"} & names("fedrec.data.prepare")


def test_the_hash_follows_the_sources(tmp_path, monkeypatch):
    package = tmp_path / "fedrec"
    package.mkdir()
    (package / "a.py").write_text("from fedrec import b\n")
    (package / "b.py").write_text("value = 1\n")
    (package / "c.py").write_text("")
    monkeypatch.setattr(provenance, "_ROOT", tmp_path)
    monkeypatch.setattr(provenance, "_PACKAGE", package)
    provenance._imports.cache_clear()
    before = code_hash("fedrec.a")
    (package / "c.py").write_text("other = 1\n")
    assert code_hash("fedrec.a") == before
    both = code_hash("fedrec.a", "fedrec.c")
    assert both == code_hash("fedrec.c", "fedrec.a") != before
    (package / "b.py").write_text("value = 2\n")
    assert code_hash("fedrec.a") != before
    assert code_hash("fedrec.a", "fedrec.c") != both
    provenance._imports.cache_clear()
