"""Whether claims are reproduced: the numbers that must agree with print, or the claim that must be found."""

from dataclasses import replace

import pytest

from fedrec.audit.reproduction_gate import BY_EFFECT, BY_NUMBERS
from fedrec.audit.verdicts import HOLDS, NOT_REPRODUCED, REVERSED, UNTESTED
from tests.made_claims import CLAIMS, GAIN, diverge, evidence, judged, narrow, reproduce, train, users

LOW_RANK = narrow("pfedclr-low-rank-helps")
CLEAN = {"w/ AF": users(200, 1000), "w/ CF": users(800, 1000)}
"""A gain that is there without doubt."""


def found(results, claim=GAIN, metric="hr@10", **changes):
    return judged(results, claim, metric, **changes).findings["clean"]


@pytest.mark.parametrize(
    ("own", "rival", "reason"),
    [
        # Print has 0.8452 and 0.6151. Half of the interval over 1,000 users is 0.0225 and 0.0302.
        (845, 615, ""),
        (866, 644, ""),
        (825, 586, ""),
        (869, 615, "w/ CF: ours 0.8690, print 0.8452 ± 0.0209"),
        (820, 615, "w/ CF: ours 0.8200, print 0.8452 ± 0.0238"),
        (845, 580, "w/ AF: ours 0.5800, print 0.6151 ± 0.0306"),
        (900, 700, "w/ CF: ours 0.9000, print 0.8452 ± 0.0200; w/ AF: ours 0.7000, print 0.6151 ± 0.0284"),
    ],
)
def test_both_lines_must_agree_with_print(tmp_path, own, rival, reason):
    train(tmp_path, GAIN, CLEAN, keys=("clean",))
    train(tmp_path, GAIN, {"w/ CF": users(own, 1000), "w/ AF": users(rival, 1000)}, keys=("published",))
    one = found(tmp_path)
    assert (one.verdict, one.reason) == (NOT_REPRODUCED if reason else HOLDS, reason)
    assert one.way == BY_NUMBERS
    assert one.effect.value == pytest.approx(0.6), "shown all the same"


def test_ours_is_the_mean_of_all_seeds(tmp_path):
    train(tmp_path, GAIN, CLEAN, keys=("clean",), seeds=(0, 1))
    for seed, own in ((0, 800), (1, 890)):
        lines = {"w/ CF": users(own, 1000), "w/ AF": users(615, 1000)}
        train(tmp_path, GAIN, lines, keys=("published",), seeds=(seed,))
    assert found(tmp_path, seeds=(0, 1)).verdict == HOLDS
    for seed in (0, 1):
        assert found(tmp_path, seeds=(seed,)).verdict == NOT_REPRODUCED


def test_an_exact_verdict_rests_on_the_sampled_numbers_that_are_printed(tmp_path):
    train(tmp_path, GAIN, CLEAN, keys=("clean",))
    lines = {"w/ CF": users(845, 1000), "w/ AF": users(615, 1000)}
    train(tmp_path, GAIN, lines, keys=("published",), exact=users(1, 1000))
    assert found(tmp_path, metric="exact_hr@10").verdict == HOLDS
    train(tmp_path, GAIN, {"w/ CF": users(700, 1000)}, keys=("published",), exact=users(845, 1000))
    assert found(tmp_path, metric="exact_hr@10").verdict == NOT_REPRODUCED


IMPROVED = narrow("pfedrec-dualper-helps-fedmf")


@pytest.mark.parametrize(
    ("own", "rival", "reason"),
    [
        # Print has 0.1919 and 0.1622 among all items, and 0.7162 and 0.6515 among candidates.
        (192, 162, ""),
        (192, 200, "FedMF, exact: ours 0.2000, print 0.1622 ± 0.0248"),
        (250, 162, "FedMF+DualPer, exact: ours 0.2500, print 0.1919 ± 0.0268"),
    ],
)
def test_where_exact_ranks_decide_exact_numbers_in_print_must_agree_too(tmp_path, own, rival, reason):
    clean = {"FedMF": users(200, 1000), "FedMF+DualPer": users(800, 1000)}
    train(tmp_path, IMPROVED, clean, keys=("clean",))
    for name, sampled, exact in (("FedMF", 652, rival), ("FedMF+DualPer", 716, own)):
        ranks = {name: users(sampled, 1000)}
        train(tmp_path, IMPROVED, ranks, keys=("published",), exact=users(exact, 1000))
    sampled, exact = (found(tmp_path, IMPROVED, metric) for metric in ("hr@10", "exact_hr@10"))
    assert (exact.verdict, exact.reason, exact.decides) == (NOT_REPRODUCED if reason else HOLDS, reason, True)
    assert sampled.verdict == HOLDS
    for name in IMPROVED.lines:
        ranks = {name: users(652 if name == "FedMF" else 716, 1000)}
        train(tmp_path, IMPROVED, ranks, keys=("published",), has_exact=False)
    exact = found(tmp_path, IMPROVED, "exact_hr@10")
    said = "not run under its paper's protocol: FedMF+DualPer, exact, FedMF, exact"
    assert (exact.verdict, exact.reason) == (UNTESTED, said)


def test_exact_numbers_are_asked_of_the_lines_that_have_some(tmp_path):
    """Of PFedRec without noise there are some in print, of PFedRec with noise there are none."""
    claim = narrow("pfedrec-noise-costs-little")
    reproduce(tmp_path, claim, count=1000)
    train(tmp_path, claim, {"lambda 0": users(400, 400), "lambda 0.5": users(390, 400)}, keys=("clean",))
    assert found(tmp_path, claim).verdict == HOLDS
    assert found(tmp_path, claim, "exact_hr@10").reason[:19] == "lambda 0, exact: ou"


@pytest.mark.parametrize("over_others", [False, True])
def test_every_line_that_a_claim_names_must_agree_and_of_all_others_two_rivals(tmp_path, over_others):
    """In print w/ CF is the strongest, with 0.8452; under clean FedMF is. AF is the weakest in print."""
    claim = replace(LOW_RANK, over_others=over_others)
    reproduce(tmp_path, claim, count=1000)
    lines = {"w/ CLR": users(100, 1000), "FedMF": users(400, 1000), "w/ AF": users(50, 1000)}
    train(tmp_path, claim, lines | {"w/ CF": users(60, 1000)}, keys=("clean",))
    assert found(tmp_path, claim).verdict == REVERSED

    def miss(name):
        reproduce(tmp_path, claim, count=1000)
        train(tmp_path, claim, {name: users(10, 1000)}, keys=("published",))
        return found(tmp_path, claim)

    for name in ("w/ CF", "FedMF", "w/ CLR", *([] if over_others else ["w/ AF"])):
        one = miss(name)
        assert one.verdict == NOT_REPRODUCED
        assert one.reason.startswith(f"{name}: ours 0.0100, print ")
    assert miss("w/ AF").verdict == (REVERSED if over_others else NOT_REPRODUCED)


def test_a_line_that_diverges_in_public_does_not_agree(tmp_path):
    reproduce(tmp_path, GAIN)
    train(tmp_path, GAIN, CLEAN, keys=("clean",))
    diverge(tmp_path, GAIN, "w/ AF", 7, key="published")
    one = found(tmp_path)
    assert (one.verdict, one.reason) == (NOT_REPRODUCED, "w/ AF diverges under its paper's protocol")


def test_what_was_not_run_under_the_papers_protocol_is_not_known_to_agree(tmp_path):
    train(tmp_path, GAIN, CLEAN, keys=("clean",))
    train(tmp_path, GAIN, {"w/ CF": users(845, 1000)}, keys=("published",))
    one = found(tmp_path)
    assert (one.verdict, one.reason) == (UNTESTED, "not run under its paper's protocol: w/ AF")


def drawn(results, *, published, clean):
    """A claim that its paper draws and does not print; each protocol has one line that all others are below."""
    claim = replace(CLAIMS["fedrap-sparsity-helps"], datasets=("ml-100k",))
    for key, best in (("published", published), ("clean", clean)):
        lines = {name: users(80 if name == best else 20) for name in claim.lines}
        train(results, claim, lines, keys=(key,))
    return claim


@pytest.mark.parametrize(
    ("published", "clean", "verdict"),
    [
        ("FedRAP", "FedRAP", HOLDS),
        ("FedRAP", "FedRAP-L2", REVERSED),
        ("FedRAP-L2", "FedRAP", NOT_REPRODUCED),
        ("nothing", "FedRAP-L2", NOT_REPRODUCED),
    ],
)
def test_where_nothing_is_printed_the_claim_itself_must_be_found(tmp_path, published, clean, verdict):
    claim = drawn(tmp_path, published=published, clean=clean)
    one = found(tmp_path, claim)
    assert (one.verdict, one.way) == (verdict, BY_EFFECT)
    said = "the claim is not found under its paper's protocol"
    assert one.reason == (said if verdict == NOT_REPRODUCED else "")


def test_where_nothing_is_printed_and_nothing_run_it_is_not_known(tmp_path):
    claim = drawn(tmp_path, published="FedRAP", clean="FedRAP")
    runs = {run for run in evidence(tmp_path).runs if run.protocol == "clean"}
    one = found(tmp_path, claim, runs=runs)
    assert (one.verdict, one.reason[:36]) == (UNTESTED, "not run under its paper's protocol: ")
