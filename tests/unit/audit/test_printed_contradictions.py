"""Contradictions of print are found by computing, and only beyond what rounding leaves open."""

from dataclasses import replace

import pytest

from fedrec.audit.printed_contradictions import contradictions, printed_gains
from fedrec.config.papers import Artefact, Line, Paper, load_papers
from fedrec.config.printed import Printed, printed_numbers
from tests.conftest import ROOT
from tests.made_results import ALL_METHODS

DATASET = "ml-100k"


def artefact(name, lines, *, table="Table 1", metrics=("hr@10",), **options):
    return Artefact("pfedclr", name, name, "metrics", (DATASET,), metrics, tuple(lines), table, options)


def papers(*artefacts):
    return {"pfedclr": Paper("pfedclr", "PFedCLR", {one.name: one for one in artefacts}, {})}


def key(method, variant="federated", metric="hr@10", table="Table 1"):
    return ("pfedclr", table, DATASET, method, variant, metric)


def number(text, unit="fraction"):
    return Printed(float(text), None, unit, len(text.partition(".")[2]))


MF = Line(run="mf", printed=("MF", "central"))
FEDMF = Line(run="fedmf", label="FedMF", printed=("FedMF", "federated"))
FEDNCF = Line(run="fedncf", label="FedNCF", printed=("FedNCF", "federated"))
PFEDREC = Line(run="pfedrec", label="PFedRec", printed=("PFedRec", "federated"))
GAIN = Line(label="gain", gain=("FedMF", "PFedRec"), printed=("PFedRec", "gain"))
OVER_BEST = Line(label="over best", gain=("best federated", "PFedRec"), printed=("PFedRec", "over best"))
MEAN = Line(label="mean", mean=("gain", "over best"), printed=("PFedRec", "mean"))


def of_gains(changed):
    """Numbers and gains of a made table, some of them changed; otherwise the gains follow from the numbers."""
    numbers = {
        key("FedMF"): "0.5",
        key("FedNCF"): "0.6",
        key("PFedRec"): "0.75",
        key("PFedRec", "gain", "hr@10 relative gain"): "50.00",
        key("PFedRec", "over best", "hr@10 relative gain"): "25.00",
        key("PFedRec", "mean", "hr@10 relative gain"): "37.50",
    }
    units = {one: "percent" if "gain" in one[5] else "fraction" for one in numbers}
    texts = numbers | changed
    found = papers(artefact("table1", [MF, FEDMF, FEDNCF, PFEDREC, GAIN, OVER_BEST, MEAN]))
    return found, {one: number(text, units[one]) for one, text in texts.items()}


def found_in(papers_and_numbers):
    return contradictions(papers_and_numbers[0], ALL_METHODS, papers_and_numbers[1])


@pytest.mark.parametrize(
    ("variant", "text", "given"),
    [
        ("gain", "50.00", None),
        # 0.5, 0.6 and 0.75 are printed with so few digits that a gain may be far off.
        ("gain", "63.00", None),
        ("gain", "81.00", 50.0),
        ("over best", "90.00", 25.0),
        ("mean", "37.51", None),
        ("mean", "37.00", 37.5),
    ],
)
def test_a_gain_that_its_numbers_do_not_give_is_found(variant, text, given):
    changed = {key("PFedRec", variant, "hr@10 relative gain"): text}
    found = found_in(of_gains(changed=changed))
    own = found.get(key("PFedRec", variant, "hr@10 relative gain"))
    if given is None:
        assert own is None
    else:
        assert own.is_gain
        assert own.others == (pytest.approx(given, rel=0.1),)


def test_more_digits_leave_less_to_rounding():
    texts = {key("FedMF"): "0.5000", key("FedNCF"): "0.6000", key("PFedRec"): "0.7500"}
    gain = key("PFedRec", "gain", "hr@10 relative gain")
    assert found_in(of_gains(changed=texts)) == {}
    assert gain in found_in(of_gains(changed={**texts, gain: "50.10"}))
    assert gain not in found_in(of_gains(changed={**texts, gain: "50.02"}))


def test_a_loss_is_a_gain_of_the_other_sign():
    lines = [FEDMF, PFEDREC, replace(GAIN, printed=("PFedRec", "loss"))]
    loss = key("PFedRec", "loss", "hr@10 relative loss")
    numbers = {
        key("FedMF"): number("0.5000"),
        key("PFedRec"): number("0.4500"),
        loss: number("10.00", "percent"),
    }
    made = papers(artefact("table1", lines))
    assert contradictions(made, ALL_METHODS, numbers) == {}
    numbers[loss] = number("-10.00", "percent")
    assert contradictions(made, ALL_METHODS, numbers)[loss].others == (pytest.approx(10, abs=0.1),)


def test_a_gain_without_one_of_its_numbers_is_not_judged():
    gain = key("PFedRec", "gain", "hr@10 relative gain")
    made, numbers = of_gains(changed={gain: "99.00"})
    assert gain in contradictions(made, ALL_METHODS, numbers)
    del numbers[key("FedMF")]
    assert gain not in contradictions(made, ALL_METHODS, numbers)


def test_a_number_printed_twice_with_two_values_is_found():
    again = artefact("table2", [replace(FEDMF, printed=("FedMF", "backbone"))], table="Table 2")
    other = key("FedMF", "backbone", table="Table 2")
    numbers = {key("FedMF"): number("0.4876"), other: number("0.4912")}
    found = contradictions(papers(artefact("table1", [FEDMF]), again), ALL_METHODS, numbers)

    assert {one: found[one].others for one in found} == {key("FedMF"): (0.4912,), other: (0.4876,)}
    assert not found[other].is_gain
    assert found[other].why == "the paper also prints 0.4876 in Table 1"
    rounded = {**numbers, other: number("0.49")}
    assert contradictions(papers(artefact("table1", [FEDMF]), again), ALL_METHODS, rounded) == {}
    # Neither another setting nor another ranking is the same quantity.
    changed = replace(again, lines=(replace(again.lines[0], run="fedmf[d=8]"),))
    assert contradictions(papers(artefact("table1", [FEDMF]), changed), ALL_METHODS, numbers) == {}
    ranked = replace(again, options={"ranks": "catalogue"})
    assert contradictions(papers(artefact("table1", [FEDMF]), ranked), ALL_METHODS, numbers) == {}


def test_sizes_that_give_another_sparsity_are_found():
    def sizes(sparsity):
        values = {"users": "100", "items": "200", "interactions": "1000", "sparsity": sparsity}
        units = {"sparsity": "percent"}
        return {key("", "", name): number(text, units.get(name, "count")) for name, text in values.items()}

    assert contradictions({}, ALL_METHODS, sizes("95.00")) == {}
    found = contradictions({}, ALL_METHODS, sizes("75.00"))
    assert {one[5]: found[one].others[0] for one in found} == pytest.approx(
        {"users": 20, "items": 40, "interactions": 5000, "sparsity": 95}
    )
    incomplete = sizes("75.00")
    del incomplete[key("", "", "items")]
    assert contradictions({}, ALL_METHODS, incomplete) == {}


def test_every_printed_gain_is_made_of_printed_numbers():
    gains = printed_gains(load_papers(ROOT / "config/papers"), ALL_METHODS, printed_numbers())
    assert {*gains} == {
        one for one in printed_numbers() if one[5].endswith(("relative gain", "relative loss"))
    }
    assert all(part in printed_numbers() for gain in gains.values() for part in gain.parts)
