"""Evidence of two versions: equal evidence passes, and every kind of difference is a reason to refuse."""

from dataclasses import replace

import pytest

from tests.prove_equal.comparison import Version, differences, other_texts_of, pairs, unexecuted_counts
from tests.unit.prove_equal.packages import package

TEXT = """
    LIMIT = 5
    def train(value):
        if value > LIMIT:
            value = LIMIT
        if value < 0:
            raise ValueError(value)
        return value
    print(train)
"""
ALL = [2, 3, 4, 5, 6, 8, 9]


def evidence(**changes):
    made = {
        "plan": "p",
        "machine": {"device": "CPU"},
        "fingerprints": {"mf/fused": "1", "fedmf/fused": "2", "fedmf/loop": "3"},
        "modules": ["fedrec.a"],
        "runs": {"fedmf clean fused": {"curve": "c", "ranks": "r"}, "mf clean fused": {"curve": "d"}},
        "kernels": {"cpu: fedmf": "k", "cuda: fedmf": "l"},
        "compiled": ["m"],
        "lines": {"a.py": ALL},
    }
    return made | changes


@pytest.fixture
def version(tmp_path):
    """A version of a text with evidence that every line was executed."""

    def make(text=TEXT, **changes):
        folder = package(tmp_path / str(len(list(tmp_path.iterdir()))), a=text)
        return Version(folder, evidence(**changes))

    return make


def only(reasons, text):
    (reason,) = reasons
    assert text in reason


def test_equal_evidence_passes_and_gives_the_fingerprints_that_differ(version):
    before = version()
    after = version(fingerprints={"mf/fused": "1", "fedmf/fused": "8", "fedmf/loop": "9", "new/fused": "7"})
    assert list(differences(before, after)) == []
    assert pairs(before.cpu, after.cpu) == [("2", "8"), ("3", "9")]


def test_methods_of_one_fingerprint_give_one_pair():
    old, new = ({"mf/fused": code, "mf/loop": code} for code in "ab")
    assert pairs(evidence(fingerprints=old), evidence(fingerprints=new)) == [("a", "b")]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"runs": {"mf clean fused": {"curve": "d"}}}, "lacks (1): fedmf clean fused"),
        ({"runs": evidence()["runs"] | {"mf clean fused": {"curve": "x"}}}, "other numbers on the CPU (1): mf clean fused (curve)"),
        ({"plan": "q"}, "followed different plans"),
        ({"machine": {"device": "ARM"}}, "of different machines: {'device': 'CPU'}, {'device': 'ARM'}"),
        ({"kernels": evidence()["kernels"] | {"cuda: fedmf": "x"}}, "texts differ; the numbers on a GPU must show that they are equal (--gpu) (1): cuda: fedmf"),
        ({"kernels": {"cpu: fedmf": "k"}}, "texts differ"),
        ({"compiled": ["n"]}, "does not compile all kernels of the older one"),
    ],
)  # fmt: skip
def test_other_evidence_is_refused(version, changes, reason):
    only(differences(version(), version(**changes)), reason)
    assert list(differences(version(**changes), version()))


def test_a_run_that_failed_in_both_versions_is_refused(version):
    failed = {"runs": {"mf clean fused": {"failed": "no memory"}}}
    only(
        set(differences(version(**failed), version(**failed))),
        "failed on the CPU (2): mf clean fused: no memory",
    )


def test_a_method_without_a_paper_may_be_refused_alike_if_its_engine_trains_it_under_another_protocol(
    version,
):
    refused = {"failed": "fedrec: 'published' differs by paper, and this method follows no paper."}
    runs = evidence()["runs"]
    both = version(runs=runs | {"mf published fused": refused})
    assert list(differences(both, both)) == []
    for others in ({"mf published loop": refused}, {"ease published fused": refused}):
        alone = version(runs=runs | others)
        only(set(differences(alone, alone)), "failed on the CPU")
    other_words = version(runs=runs | {"mf published fused": {"failed": refused["failed"] + "."}})
    assert any("failed on the CPU" in reason for reason in differences(both, other_words))


def test_recordings_without_a_run_are_refused(version):
    only(differences(version(runs={}), version(runs={})), "has no run")


def test_a_method_that_only_the_newer_commit_has_executes_new_code_and_compares_none(version):
    """It shows that added statements run; the runs of older methods show that their numbers stay."""
    added = TEXT.replace("value = LIMIT", "value = min(LIMIT, value)")
    runs = evidence()["runs"] | {"fcf[d=2] clean fused": {"curve": "n"}}
    kernels = evidence()["kernels"] | {"cpu: fcf[d=2]  round 1": "n"}
    after = version(added, runs=runs, kernels=kernels, compiled=["m", "n"])
    assert list(differences(version(absent=["fcf"]), after)) == []
    lacking = list(differences(version(absent=["mf"]), after))
    assert any("lacks (1): fcf[d=2] clean fused" in reason for reason in lacking)
    assert any("texts differ" in reason and "cpu: fcf[d=2]" in reason for reason in lacking)
    only(
        differences(after, version(added, absent=["fcf"], kernels=kernels, compiled=["m", "n"])), "lacks (1)"
    )


def test_a_recording_on_a_gpu_must_have_equal_numbers_too(version):
    before, after = version(), version(kernels={})
    with_gpu = replace(before, gpu=evidence()), replace(after, gpu=evidence())
    assert list(differences(*with_gpu)) == []
    only(differences(before, with_gpu[1]), "texts differ")
    for changes in ({"runs": {"mf clean fused": {"curve": "d"}}}, {"machine": {}}, {"plan": "q"}):
        only(differences(with_gpu[0], replace(after, gpu=evidence(**changes))), "GPU")


def test_a_changed_statement_must_be_executed_in_both_versions(version):
    after = TEXT.replace("value = LIMIT", "value = min(LIMIT, value)")
    without = {"lines": {"a.py": [line for line in ALL if line != 5]}}
    assert list(differences(version(), version(after))) == []
    only(differences(version(), version(after, **without)), "in the newer commit (1): fedrec/a.py:5")
    only(differences(version(**without), version(after)), "in the older commit (1): fedrec/a.py:5")
    assert list(differences(version(), version(after, **without), unexecuted="no method reaches it")) == []
    assert unexecuted_counts(version(), version(after, **without)) == {"newer": [1, 1], "older": [0, 1]}


def test_a_recording_on_a_gpu_executes_statements_too(version):
    after = version(TEXT.replace("value = LIMIT", "value = min(LIMIT, value)"), lines={})
    before = replace(version(), gpu=evidence())
    assert list(differences(before, replace(after, gpu=evidence()))) == []
    assert list(differences(before, replace(after, gpu=evidence(lines={}))))


def test_an_error_path_need_not_be_executed(version):
    assert list(differences(version(), version(TEXT.replace("ValueError(value)", "KeyError()")))) == []


def test_a_module_that_no_fingerprint_covers_may_change(version):
    other = {"modules": []}
    assert list(differences(version(**other), version(TEXT.replace("5", "6"), **other))) == []


@pytest.mark.parametrize(
    ("old", "new", "newer", "older"),
    [
        ("LIMIT = 5", "LIMIT = 6", "6", "5"),
        ("LIMIT = 5", "LIMIT = -5", "-5", "5"),
        ("value > LIMIT", "value >= LIMIT", ">=", ">"),
    ],
)
def test_a_threshold_that_no_run_reaches_needs_a_reason(version, old, new, newer, older):
    versions = version(), version(TEXT.replace(old, new))
    reasons = list(differences(*versions))
    assert [reason.rpartition(": ")[2] for reason in reasons] == [newer, older]
    assert list(differences(*versions, literals="a constant became a setting")) == []


def test_many_differences_are_counted_and_not_all_listed(version):
    runs = {f"run {number:02d}": {"curve": "c"} for number in range(20)}
    other = {key: {"curve": "x"} for key in runs}
    only(differences(version(runs=runs), version(runs=other)), "(20): run 00 (curve); run 01")
    only(differences(version(runs=runs), version(runs=other)), "and 8 more")


def test_runs_that_differ_each_time_on_a_gpu_are_compared_by_kernel_texts(version):
    """Recorded twice, the older commit shows which runs have no fixed numbers there."""
    other = evidence()["runs"] | {"mf clean fused": {"curve": "x"}}
    before, after = replace(version(), gpu=evidence()), replace(version(), gpu=evidence(runs=other))
    only(differences(before, after), "other numbers on the GPU (1): mf clean fused (curve)")
    again = replace(before, gpu_again=evidence(runs=evidence()["runs"] | {"mf clean fused": {"curve": "y"}}))
    assert again.unstable == ["mf clean fused"]
    assert list(differences(again, after)) == []
    known = replace(before, known_unstable=("mf clean fused",))
    assert list(differences(known, after)) == []
    spelt = replace(after, cpu=after.cpu | {"kernels": {}})
    only(differences(known, spelt), "texts differ")
    assert list(differences(known, spelt, other_texts="an index is written in another way")) == []
    assert other_texts_of(known, spelt)["cases"] == sorted(known.cpu["kernels"])
    for changes, reason in (
        ({"machine": {"device": "another"}}, "GPU are of different machines"),
        ({"plan": "q"}, "GPU followed different plans"),
        ({"runs": evidence()["runs"] | {"mf clean fused": {"failed": "no memory"}}}, "failed on the GPU"),
    ):
        only(differences(replace(before, gpu_again=evidence(**changes)), before), reason)
    texts = replace(after, cpu=after.cpu | {"kernels": {}})
    only(differences(again, texts), "texts differ")
    compiled = replace(after, gpu=evidence(runs=other, compiled=["n"]))
    only(differences(again, compiled), "does not compile all kernels for the GPU of the older one")
