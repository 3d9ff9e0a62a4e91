"""Logs of loops with a planted rule: which leak, which do not, and which are too short to tell."""

import json
from dataclasses import replace

import numpy as np
import pytest

from fedrec.audit.draw_log import DrawLog
from fedrec.audit.draw_rates import DrawRates, Pairs
from fedrec.audit.drawn_negatives import FALSE_ALARMS, audit_draws, draw_audit_text
from fedrec.data.split import TEST, TRAIN, VALIDATION
from tests.drawing_loops import (
    LEAKS,
    NEUTRAL,
    SOUND,
    UNIFORM,
    drawn,
    made_split,
    other_split,
    pool_of,
    popularity,
)

ENOUGH = 40
"""Draws of each of 120 users: some 35 of items held out for test are expected."""


@pytest.fixture(scope="module")
def split():
    return made_split()


def audited(split, may, draws=ENOUGH, weight=None, **options):
    return audit_draws(DrawLog.of(*drawn(may, draws, weight)), split, **options)


@pytest.mark.parametrize("is_uniform", [True, False])
@pytest.mark.parametrize(
    ("rule", "verdict"), [(LEAKS, "leaks"), (SOUND, "sound"), (NEUTRAL, "avoids candidates too")]
)
def test_the_pool_of_a_uniform_sampler_is_found(split, rule, verdict, is_uniform):
    found = audited(split, pool_of(split, rule), is_uniform=is_uniform)
    assert found.verdict == verdict
    assert {part.verdict for part in found.parts.values()} == {verdict}
    for part in found.parts.values():
        assert (part.held_out.draws == 0) == (rule != SOUND)
        assert (part.candidates.draws == 0) == (rule == NEUTRAL)
        assert part.held_out.expected == pytest.approx(35, abs=8)
        # Both expectations mean the same of a uniform sampler.
        assert part.held_out.uniform == pytest.approx(ENOUGH * 120 / 136, rel=0.03)
        assert part.held_out.strength < 1e-8
    assert found.training.draws == 0
    assert "Warning" not in draw_audit_text(found)


@pytest.mark.parametrize("power", [1, -1])
def test_a_sampler_may_prefer_popular_items_or_rare_ones(split, power):
    """The held-out items are popular. A sound sampler of rare items draws them seldom, which is no leak."""
    weight = popularity(split) ** power
    sound = audited(split, pool_of(split, SOUND), 400, weight)
    leak = audited(split, pool_of(split, LEAKS), 400, weight)
    assert (sound.verdict, leak.verdict) == ("sound", "leaks")
    for part in sound.parts.values():
        assert part.held_out.ratio == pytest.approx(1, abs=0.15)
        assert (part.held_out.uniform < part.held_out.expected) == (power == 1)
    by_uniform = audited(split, pool_of(split, SOUND), 400, weight, is_uniform=True)
    assert by_uniform.parts["test"].held_out.ratio != pytest.approx(1, abs=0.25)


def test_a_short_log_does_not_tell_and_says_how_long_it_must_be(split):
    for rule in (LEAKS, SOUND):
        found = audited(split, pool_of(split, rule), 4)
        assert found.verdict == "too few draws to tell"
        assert all(part.held_out.strength > FALSE_ALARMS for part in found.parts.values())
    words = draw_audit_text(found)
    assert "Log more rounds" in words
    assert "a verdict needs less than 0.0005" in words


def test_draws_that_repeat_count_once(split):
    """Each user draws three items once and trains on them for 300 rounds: that a held-out item is missed is chance."""
    user, item = drawn(pool_of(split, LEAKS), 3)
    once = audit_draws(DrawLog.of(user, item), split)
    often = audit_draws(DrawLog.of(np.tile(user, 300), np.tile(item, 300), 300), split)
    assert often.bundle == pytest.approx(300, rel=0.1)
    assert often.parts["test"].held_out.strength == pytest.approx(
        once.parts["test"].held_out.strength, rel=0.2
    )
    assert often.verdict == "too few draws to tell"
    assert "Counts vary" in draw_audit_text(often)
    assert "Counts vary" not in draw_audit_text(once)


def test_a_leak_of_validation_alone_is_found(split):
    found = audited(split, pool_of(split, SOUND, VALIDATION))
    assert {name: part.verdict for name, part in found.parts.items()} == {
        "validation": "leaks",
        "test": "sound",
    }
    assert found.verdict == "leaks"


def test_a_loop_whose_users_leak_in_part_is_found(split):
    may = pool_of(split, SOUND)
    may[:36] = pool_of(split, LEAKS)[:36]
    found = audited(split, may, 600)
    assert found.verdict == "leaks in part"
    assert found.parts["test"].held_out.ratio == pytest.approx(0.7, abs=0.1)


def test_a_sound_loop_on_another_split_is_no_leak(split):
    """It never draws the items that this split holds out, since it trains on them; it draws some that this one trains on."""
    found = audited(split, pool_of(other_split(split), SOUND))
    assert found.verdict == "another split"
    assert all(part.held_out.draws == 0 for part in found.parts.values())
    assert "check ids and split" in draw_audit_text(found)
    # One that leaks on another split never draws anything that this one holds out or trains on.
    assert audited(split, pool_of(other_split(split), LEAKS)).verdict == "leaks"


def test_a_sampler_over_all_items_is_sound_with_a_warning(split):
    found = audited(split, pool_of(split, UNIFORM))
    assert found.verdict == "sound"
    assert found.training.ratio == pytest.approx(1, abs=0.1)
    assert "Warning: the loop samples training items" in draw_audit_text(found)
    held_out_never = audited(split, pool_of(split, UNIFORM, VALIDATION, TEST))
    assert held_out_never.verdict == "leaks"


def test_sound_loops_are_called_leaking_as_seldom_as_stated(split):
    """Among 120 p, those below a level are about the share that it says."""
    may = pool_of(split, SOUND)
    rng = np.random.default_rng(1)
    ps = []
    user = np.repeat(np.arange(split.users), 20)
    own = [np.flatnonzero(row) for row in may]
    for _ in range(60):
        item = np.concatenate([rng.choice(items, 20) for items in own])
        found = audit_draws(DrawLog.of(user, item), split)
        ps += [part.held_out.p for part in found.parts.values()]
    assert np.mean(np.array(ps) < 0.05) <= 0.1
    assert 0.3 <= np.mean(np.array(ps) < 0.5) <= 0.6


def test_expected_draws_and_p_are_those_computed_by_hand():
    """Three users and four items; user 0 holds out item 3, which two others draw twice of six times."""
    log = DrawLog.of(np.array([0, 0, 1, 1, 1, 2, 2, 2]), np.array([1, 2, 1, 2, 3, 1, 2, 3]))
    trained = Pairs.of(np.array([0, 1, 2]), np.array([0, 0, 0]), 4)
    held_out = Pairs.of(np.array([0]), np.array([3]), 4)
    rates = DrawRates.fitted(log, trained.joined(held_out), np.arange(3), is_uniform=False)
    found = rates.kind(held_out)
    # Each of the others draws each item once, so user 0 would draw item 3 once, too.
    assert found.expected == pytest.approx(1)
    assert found.uniform == pytest.approx(1)
    # No draw, beside two of the others, where a third of all is expected.
    assert found.p == found.strength == pytest.approx((2 / 3) ** 2)
    assert (found.pairs, found.draws, found.ratio, found.low) == (1, 0, 0, 0)


def test_draws_of_users_outside_the_split_are_left_out(split):
    user, item = drawn(pool_of(split, SOUND), ENOUGH)
    stranger = split.users
    more = DrawLog.of(np.append(user, [stranger] * 5), np.append(item, range(5)))
    found = audit_draws(more, split)
    assert (found.left_out, found.draws) == (5, len(user))
    assert found.parts == audit_draws(DrawLog.of(user, item), split).parts
    assert "Left out: 5 draws" in draw_audit_text(found)


def test_a_log_of_one_user_compares_with_nobody(split):
    may = pool_of(split, SOUND)
    user, item = drawn(may[:1], 400)
    found = audit_draws(DrawLog.of(user, item), split)
    assert found.verdict == "too few draws to tell"
    assert found.parts["test"].held_out.high is None
    assert "to any)" in draw_audit_text(found)


def test_an_audit_is_json(split):
    found = audited(split, pool_of(split, LEAKS)).as_dict()
    assert json.loads(json.dumps(found, allow_nan=False)) == found
    assert found["parts"]["test"]["held_out"]["draws"] == 0
    # Every draw is of one kind: held-out items and training are apart, candidates are among comparable ones.
    draws = found["training"]["draws"] + found["comparable_draws"]
    draws += sum(part["held_out"]["draws"] for part in found["parts"].values())
    assert draws == found["draws"]


def test_items_held_out_that_stand_in_training_too_do_not_count(split):
    """Under a protocol that keeps repeated pairs; the loop rightly never draws them."""
    users, items = split.pairs_of(TRAIN)
    first = items[np.unique(users, return_index=True)[1]]
    item = split.item.copy()
    item[np.flatnonzero(split.part == TEST)[:50]] = first[:50]
    found = audited(replace(split, item=item), pool_of(split, SOUND))
    assert found.parts["test"].held_out.pairs == 120 - 50
