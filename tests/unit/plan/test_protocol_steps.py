"""The way from a published protocol to the clean one: names of its steps, what each changes, which runs it reads."""

from dataclasses import fields, replace

import numpy as np
import pytest

from fedrec.config.papers import load_papers
from fedrec.config.protocol import OWN, SWITCHES, Protocol, full_name, short_name
from fedrec.config.protocol_file import protocol_named, switches_of
from fedrec.data.split import TEST, TRAIN, make_split
from fedrec.errors import ConfigurationError
from fedrec.plan.protocol_steps import ProtocolStep, protocol_steps, runs_of_step, steps
from tests.conftest import ROOT
from tests.federations import METHODS
from tests.made_data import made_interactions

PAPERS = tuple(load_papers(ROOT / "config/papers"))
STEPS = [f"{extent}-{switch}" for extent in ("only", "upto") for switch in SWITCHES]


def changed(protocols, name, start):
    """The settings in which two protocols differ, but for the name."""
    mine, other = (protocol_named(protocols, one).as_dict() for one in (name, start))
    return {key for key in mine if key != "name" and mine[key] != other[key]}


# Switches and names


def test_every_switch_turns_settings_of_a_protocol_and_none_is_turned_twice():
    turned = [setting for settings in SWITCHES.values() for setting in settings]
    assert len(turned) == len(set(turned))
    assert set(turned) <= {field.name for field in fields(Protocol)}


@pytest.mark.parametrize("paper", PAPERS)
def test_switches_are_all_that_lies_between_a_paper_and_clean(protocols, paper):
    turned = {setting for settings in SWITCHES.values() for setting in settings}
    assert changed(protocols, f"published-{paper}", "clean") <= turned
    end = protocol_named(protocols, f"upto-order-{paper}")
    assert replace(end, name="clean") == protocols["clean"]


@pytest.mark.parametrize("paper", PAPERS)
def test_a_step_turns_its_own_switches_and_no_other(protocols, paper):
    start = f"published-{paper}"
    apart = changed(protocols, "clean", start)
    upto = set()
    for switch, settings in SWITCHES.items():
        upto |= set(settings)
        assert changed(protocols, f"only-{switch}-{paper}", start) == apart & set(settings)
        assert changed(protocols, f"upto-{switch}-{paper}", start) == apart & upto
    assert changed(protocols, f"only-pool-{paper}", start) == {"negative_pool"}


def test_a_step_keeps_the_name_it_was_requested_by_and_its_paper(protocols):
    found = protocol_named(protocols, "upto-ties-fedem")
    assert (found.name, found.paper) == ("upto-ties-fedem", "fedem")
    assert (found.ranked_score, found.rank_ties) == ("logit", "target_mean")
    assert found.equal_times == "first_row"
    assert protocols["published-fedem"].paper == "fedem"
    assert protocols["clean"].paper is None


def test_switches_up_to_one_come_in_their_order():
    assert switches_of("only-lists") == ("lists",)
    assert switches_of("upto-lists") == ("pool", "repeats", "lists")
    assert switches_of("upto-order") == tuple(SWITCHES)


@pytest.mark.parametrize("kind", ["published", *STEPS])
@pytest.mark.parametrize("paper", PAPERS)
def test_the_full_name_of_a_step_has_its_paper(kind, paper):
    assert full_name(kind, paper) == f"{kind}-{paper}"
    assert full_name(f"{kind}-{paper}", paper) == f"{kind}-{paper}"
    assert short_name(f"{kind}-{paper}") == kind


def test_a_method_that_follows_no_paper_has_no_published_protocol_of_its_own():
    assert full_name("clean", OWN) == "clean"
    assert full_name("published-fedem", OWN) == "published-fedem"
    with pytest.raises(
        ConfigurationError,
        match="differs by paper, and this method follows no paper\\. Name the paper: published-pfedclr",
    ):
        full_name("published", OWN)


@pytest.mark.parametrize("kind", ["clean", "only-nothing", "upto"])
def test_other_protocols_are_shared_by_all_papers(kind):
    assert full_name(kind, "pfedclr") == kind
    assert short_name(kind) == kind


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("only-pool-nosuchpaper", "unknown protocol 'only-pool-nosuchpaper'"),
        ("only-pool", "unknown protocol 'only-pool'"),
        ("only-pol-fedem", "Did you mean 'only-pool-fedem'?"),
        ("published-fedme", "Did you mean 'published-fedem'?"),
        ("only-nosuch-fedem", "a switch is one of pool, repeats, lists, round, ties, order"),
    ],
)
def test_an_unknown_step_or_paper_is_an_error_that_helps(protocols, name, said):
    with pytest.raises(ConfigurationError) as error:
        protocol_named(protocols, name)
    assert said in str(error.value)
    assert name in str(error.value)
    assert "Known protocols: published-pfedrec, " in str(error.value)


# Steps and the runs they read


def made(paper, switches=tuple(SWITCHES), distinct_pairs=True, names=("popularity", "fedmf")):
    return protocol_steps(
        METHODS, names, dataset="ml-100k", paper=paper, rounds=15, switches=switches,
        distinct_pairs=distinct_pairs,
    )  # fmt: skip


def read(protocols, *arguments, **more):
    return {
        step.name: (short_name(step.protocol), step.rule)
        for step in steps(made(*arguments, **more), protocols)
    }


def test_the_steps_of_a_paper_on_distinct_pairs(protocols):
    test, validation = "best_test", "best_validation"
    found = read(protocols, "pfedclr")
    assert found == {
        "published": ("published", test),
        "only-pool": ("only-pool", test),
        "only-repeats": ("published", test),
        "only-lists": ("only-lists", test),
        "only-round": ("published", validation),
        "only-ties": ("only-ties", test),
        "only-order": ("only-order", test),
        "upto-pool": ("only-pool", test),
        "upto-repeats": ("only-pool", test),
        "upto-lists": ("upto-lists", test),
        "upto-round": ("upto-lists", validation),
        "upto-ties": ("upto-ties", validation),
        "clean": ("clean", validation),
    }
    assert (next(iter(found)), list(found)[-1]) == ("published", "clean")


def test_where_pairs_repeat_dropping_them_is_trained(protocols):
    found = read(protocols, "pfedclr", distinct_pairs=False)
    assert found["only-repeats"] == ("only-repeats", "best_test")
    assert found["upto-repeats"] == ("upto-repeats", "best_test")
    assert found["upto-pool"] == ("only-pool", "best_test")


def test_what_a_paper_does_like_clean_is_not_trained_again(protocols):
    """PFedRec has two lists already, and reports the round of the best validation."""
    found = read(protocols, "pfedrec")
    assert (
        found["only-lists"] == found["only-round"] == found["published"] == ("published", "best_validation")
    )
    assert (
        found["upto-lists"] == found["upto-round"] == found["upto-pool"] == ("only-pool", "best_validation")
    )
    assert found["upto-ties"] == ("upto-ties", "best_validation")


@pytest.mark.parametrize("paper", PAPERS)
@pytest.mark.parametrize("distinct_pairs", [True, False])
def test_the_runs_a_step_reads_are_trained_and_ranked_as_the_step_says(protocols, paper, distinct_pairs):
    """In all but the round, and what becomes of repeats where there are none."""
    free = {"round_rule"} | ({"repeated_pairs"} if distinct_pairs else set())
    for step in steps(made(paper, distinct_pairs=distinct_pairs), protocols):
        meant = protocol_named(protocols, full_name(step.name, paper))
        assert changed(protocols, step.protocol, meant.name) <= free
        assert step.rule == meant.round_rule


@pytest.mark.parametrize("paper", PAPERS)
def test_the_rule_for_the_round_trains_nothing(protocols, paper):
    read_from = {short_name(step.protocol) for step in steps(made(paper), protocols)}
    assert not {"only-round", "upto-round"} & read_from


def test_switches_come_in_the_order_of_the_way_whatever_order_they_are_requested(protocols):
    found = made("pfedclr", switches=("order", "pool"))
    assert found.switches == ("pool", "order")
    assert [step.name for step in steps(found, protocols)] == [
        "published", "only-pool", "only-order", "upto-pool", "clean",
    ]  # fmt: skip


def test_a_paper_that_differs_in_more_than_switches_does_not_end_in_clean_runs(protocols):
    other = dict(protocols) | {"published-pfedclr": replace(protocols["published-pfedclr"], candidates=50)}
    found = {step.name: step for step in steps(made("pfedclr"), other)}
    assert found["clean"] == ProtocolStep("clean", "upto-order-pfedclr", "best_validation")


def test_a_step_reads_a_run_of_each_method_and_seed(protocols):
    ladder = made("fedrap")
    (pool,) = (step for step in steps(ladder, protocols) if step.name == "only-pool")
    found = runs_of_step(ladder, METHODS, pool, (0, 3))
    assert list(found) == ["popularity", "fedmf[rounds=15]"]
    assert [run.folder for run in found["fedmf[rounds=15]"]] == [
        f"runs/fedrap/ml-100k/only-pool-fedrap/fedmf@rounds-15/seed{seed}" for seed in (0, 3)
    ]


# What steps do to a split


@pytest.fixture(scope="module")
def rows():
    """20 users with 8 of 60 items each; their latest three rows have one time, and the first of them repeats."""
    draw = np.random.default_rng(0)
    found = []
    for user in range(20):
        own = draw.permutation(60)[:8].tolist()
        found += [(user, item, step) for step, item in enumerate(own[:6])]
        found += [(user, item, 6) for item in (own[0], own[6], own[7])]
    return found


def split(protocols, rows, name, **more):
    return make_split(
        made_interactions(rows, items=60, **more), replace(protocol_named(protocols, name), candidates=10)
    )


def held_out(found):
    return found.pairs_of(TEST)[1].tolist()


def held_out_in_training(found):
    trained = set(zip(*(values.tolist() for values in found.pairs_of(TRAIN)), strict=True))
    return sum(pair in trained for pair in enumerate(held_out(found)))


def as_lists(candidates):
    return candidates.validation.tolist(), candidates.test.tolist()


@pytest.mark.parametrize("switch", ["pool", "round", "ties"])
def test_steps_that_are_not_about_rows_leave_the_split_alone(protocols, rows, switch):
    before = split(protocols, rows, "published-fedem")
    after = split(protocols, rows, f"only-{switch}-fedem")
    assert after.content_hash() == before.content_hash()
    assert after.protocol != before.protocol


def test_only_lists_gives_validation_and_test_lists_of_their_own(protocols, rows):
    before, after = (split(protocols, rows, f"{name}-fedem") for name in ("published", "only-lists"))
    assert before.table().equals(after.table())
    validation, test = as_lists(before.candidates)
    assert validation == test
    assert as_lists(after.candidates)[0] == validation
    assert not any(set(a) & set(b) for a, b in zip(*as_lists(after.candidates), strict=True))


def test_only_repeats_drops_the_later_of_a_pair(protocols, rows):
    before, after = (split(protocols, rows, f"{name}-fedem") for name in ("published", "only-repeats"))
    assert len(before.user) == 20 * 9
    assert len(after.user) == 20 * 8
    # With all rows kept the held-out item stands in training too.
    assert [held_out_in_training(found) for found in (before, after)] == [20, 0]
    pairs = set(zip(after.user.tolist(), after.item.tolist(), strict=True))
    assert pairs == set(zip(before.user.tolist(), before.item.tolist(), strict=True))
    assert len(pairs) == len(after.user)
    assert as_lists(after.candidates) == as_lists(before.candidates)


def test_only_order_settles_equal_times_by_chance(protocols, rows):
    before, after = (split(protocols, rows, f"{name}-fedem") for name in ("published", "only-order"))
    assert held_out(before) != held_out(after)
    assert as_lists(after.candidates) == as_lists(before.candidates)
    # By chance, and not by the order of the file.
    turned = split(protocols, rows[::-1], "only-order-fedem")
    assert held_out(turned) == held_out(after)
    assert held_out(split(protocols, rows[::-1], "published-fedem")) != held_out(before)


def test_steps_keep_the_row_order_of_their_paper(protocols, rows):
    orders = {"fedem": range(len(rows))[::-1]}
    for name in ("published-fedem", "only-pool-fedem", "upto-lists-fedem"):
        theirs = split(protocols, rows, name, **orders)
        assert held_out(theirs) == held_out(split(protocols, rows[::-1], name))
        assert held_out(theirs) != held_out(split(protocols, rows, name))
    other = split(protocols, rows, "only-pool-pfedclr", **orders)
    assert held_out(other) == held_out(split(protocols, rows, "only-pool-pfedclr"))


def test_the_last_step_splits_as_clean_does(protocols, rows):
    orders = {"fedem": range(len(rows))[::-1]}
    last, clean = (split(protocols, rows, name, **orders) for name in ("upto-order-fedem", "clean"))
    assert last.content_hash() == clean.content_hash()
