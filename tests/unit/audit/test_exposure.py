"""Exposure on made data whose truth is known: nothing to learn, a preference, a leak; and draws, counted naively."""

import json
import re
from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

from fedrec.audit.exposure import (
    DrawCounts,
    Drawers,
    candidate_scores,
    draw_counter_hits,
    draw_counts,
    drawn_items,
    exposure,
    exposure_summary,
    mean_ranks,
    score_correlation,
    vanished,
)
from fedrec.config.protocol import full_name
from fedrec.data.split import write_split
from fedrec.errors import ComparisonError, ResultError
from fedrec.federation.clients import Clients
from fedrec.native.on_cpu import FLAGS
from fedrec.plan.runs import RunId
from fedrec.runs.record import RunRecord
from tests.conftest import swift
from tests.federations import METHODS, dies_in_round, planted_tastes, uniform_noise
from tests.made_runs import write_run
from tests.trained_runs import PAPER, finished, shared_results

KINDS = ("published", "only-pool", "clean")
USERS, LISTED = 240, 50
"""Users of the made datasets, and items among which each test item is ranked: 49 candidates and itself."""
CHANCE = 10 / LISTED
OUT_OF_REACH = 4
"""Standard errors that chance is taken not to go."""
FOLLOWS, VANISHES = -0.3, 0.5
"""A run lives by its draws if its scores follow them more than this, and so many of its hits vanish."""


@pytest.fixture(autouse=True)
def _swift_kernels(request, monkeypatch):
    """For the datasets on which runs have many rounds."""
    if {"noise", "tastes"} & set(request.fixturenames):
        monkeypatch.setenv(FLAGS, swift())


@pytest.fixture(scope="session")
def noise(tmp_path_factory):
    """Items drawn uniformly; a run that hits more than by chance has learnt it from the protocol."""
    sizes = {"users": USERS, "items": 150, "per_user": 12, "candidates": LISTED - 1}
    return shared_results(tmp_path_factory, "noise", uniform_noise, **sizes)


@pytest.fixture(scope="session")
def tastes(tmp_path_factory):
    """Two kinds of users with favourites of their own."""
    return shared_results(tmp_path_factory, "tastes", planted_tastes, users=USERS)


@pytest.fixture(scope="session")
def small(tmp_path_factory):
    """15 users with 6 training items each, for runs whose draws are counted one by one."""
    sizes = {"users": 15, "items": 40, "per_user": 8, "candidates": 10}
    return shared_results(tmp_path_factory, "drawn", uniform_noise, **sizes)


def alone(root, kind):
    """A method in which every client remembers all that it drew, and learns nothing of others."""
    return finished(root, "local-only", kind, "rounds=10")


def counter(root, kind):
    return finished(root, "draw-counter", kind, "rounds=10")


def hit_ratio(run, rule):
    return run.summary["metrics"][rule]["test"]["hr@10"]


def error_of(share, users=USERS):
    """The standard error of a share of users."""
    return (share * (1 - share) / users) ** 0.5


def lives_by_its_draws(published, exposed):
    follows = exposure(published)["score_follows_draws"]["mean"]
    return follows < FOLLOWS and vanished(published, exposed)["share"] > VANISHES


# Nothing to learn


def test_under_clean_the_held_out_item_is_drawn_like_any_candidate(noise):
    for part in ("validation", "test"):
        found = exposure(counter(noise, "clean"))[part]
        drawn, expected = found["held_out"], found["candidates"]["mean"]
        # A rare draw: of its items a client draws each about as often as Poisson's law says.
        assert abs(drawn["mean"] - expected) < OUT_OF_REACH * (expected / USERS) ** 0.5
        never = found["candidates"]["never"]
        assert abs(drawn["never"] - never) < OUT_OF_REACH * error_of(never)
        assert never < 0.1


def test_as_published_the_held_out_item_is_never_drawn_and_candidates_are(noise):
    for part in ("validation", "test"):
        found = exposure(counter(noise, "published"))[part]
        assert found["held_out"] == {"mean": 0.0, "never": 1.0}
        assert found["candidates"]["mean"] > 2
        assert found["candidates"]["never"] < 0.1


@pytest.mark.parametrize("method", ["local-only", "fedmf"])
def test_under_clean_nothing_is_learnt_of_noise(noise, method):
    run = finished(noise, method, "clean", "rounds=10")
    for rule in ("best_validation", "last"):
        assert abs(hit_ratio(run, rule) - CHANCE) < OUT_OF_REACH * error_of(CHANCE)


@pytest.mark.parametrize("method", ["draw-counter", "local-only", "fedmf"])
def test_under_clean_the_mean_rank_of_noise_is_the_middle(noise, method):
    """Counts tie often. The target's rank is then the mean of the tied, which leaves the mean alone in place:
    the share of ranks up to 10 is another than by chance.
    """
    ranks = finished(noise, method, "clean", "rounds=10").user_ranks("last").rank
    spread = ((LISTED**2 - 1) / 12) ** 0.5
    assert abs(ranks.mean() - (LISTED + 1) / 2) < OUT_OF_REACH * spread / USERS**0.5


# A planted leak


def test_a_counter_of_draws_finds_what_the_published_protocol_hides(noise):
    published, exposed = counter(noise, "published"), counter(noise, "only-pool")
    assert hit_ratio(published, "last") > 0.95
    assert exposure(published)["score_follows_draws"] == {
        "mean": pytest.approx(-1, abs=1e-12),
        "clients": USERS,
    }
    assert lives_by_its_draws(published, exposed)


def test_a_model_of_ones_own_remembers_its_draws(noise):
    published, exposed = alone(noise, "published"), alone(noise, "only-pool")
    assert hit_ratio(published, "last") > 0.9
    assert lives_by_its_draws(published, exposed)
    # Where the held-out item may be drawn too it is forgotten, and what was left of hits is chance.
    assert abs(hit_ratio(exposed, "last") - CHANCE) < OUT_OF_REACH * error_of(CHANCE)


def test_memory_of_draws_shows_in_scores_even_where_it_gives_nothing_away(noise):
    assert exposure(alone(noise, "clean"))["score_follows_draws"]["mean"] < FOLLOWS


# A planted preference


def test_popularity_does_not_care_what_is_drawn(tastes):
    runs = {kind: finished(tastes, "popularity", kind) for kind in KINDS}
    assert hit_ratio(runs["published"], "last") > CHANCE + OUT_OF_REACH * error_of(CHANCE)
    found = vanished(runs["published"], runs["only-pool"])
    assert (found["vanished"], found["new"], found["share"]) == (0, 0, 0)
    assert exposure(runs["published"]) == {"draws": "this method samples no training negatives"}


def test_what_is_learnt_of_others_does_not_vanish(tastes):
    runs = {kind: finished(tastes, "mf", kind, "rounds=6", "rate=0.001", "spread=0.01") for kind in KINDS}
    shares = {kind: hit_ratio(run, "last") for kind, run in runs.items()}
    assert min(shares.values()) > CHANCE + OUT_OF_REACH * error_of(CHANCE)
    # Other candidates, and where rows tie other held-out items: two samples of users.
    assert abs(shares["published"] - shares["clean"]) < OUT_OF_REACH * 2**0.5 * error_of(shares["clean"])
    found = vanished(runs["published"], runs["only-pool"])
    assert found["hits"] > 60
    assert found["share"] < 0.1
    assert abs(exposure(runs["published"])["score_follows_draws"]["mean"]) < 0.1
    assert not lives_by_its_draws(runs["published"], runs["only-pool"])


# Draws, counted again


@pytest.fixture
def seen(monkeypatch, unchecked):  # noqa: ARG001 - a fixture that acts
    """How often each client really drew each item while runs trained: (client, item) -> times."""
    found = Counter()
    samples = Clients.samples

    def spied(self, who, *rest):
        made = samples(self, who, *rest)
        at = 0
        for client, size in zip(who.tolist(), made.size.tolist(), strict=True):
            for sample in range(at, at + size):
                if made.label[sample] == 0:
                    found[client, int(made.item[sample])] += 1
            at += size
        return made

    monkeypatch.setattr(Clients, "samples", spied)
    return found


def drawn_by(*runs):
    """How often each client drew each item, clients x items, by run; the runs are on one split."""
    clients = runs[0].clients
    return drawn_items(clients, clients.everyone, [Drawers.of(run) for run in runs])


def counts_of(run, drawn):
    """Of all that clients drew, what they are ranked on."""
    return DrawCounts.of(run.clients, run.clients.everyone, drawn)


def same_counts(one, other):
    parts = [(one.total, other.total)]
    for mine, others in ((one.held_out, other.held_out), (one.candidates, other.candidates)):
        parts += [(mine[part], others[part]) for part in ("validation", "test")]
    return all(torch.equal(*pair) for pair in parts)


QUICK = ("rounds=4", "d=4", "local_epochs=1")
FEW = ("participation=0.3",)


@pytest.mark.parametrize(
    ("method", "changes"),
    [
        ("fedmf", (*QUICK, *FEW)),
        ("fedfast", (*QUICK, *FEW)),
        ("fedrecon", (*QUICK, *FEW)),
        ("fedcia", (*QUICK, *FEW)),
        ("perfedrec", (*QUICK, *FEW)),
        ("fedmf+plgc", (*QUICK, *FEW)),
        ("mf", ("rounds=3", "d=4")),
        ("centrap", ("rounds=3", "d=4")),
        ("draw-counter", ("rounds=3",)),
    ],
)
def test_draws_are_those_of_training(small, seen, method, changes):
    run = finished(small, method, "published", *changes, seed=5)
    trained = Counter(seen)
    assert trained
    (drawn,) = drawn_by(run)
    assert {tuple(pair): int(drawn[tuple(pair)]) for pair in drawn.nonzero().tolist()} == trained


def test_the_draw_counter_has_counted_the_same(small):
    run = finished(small, "draw-counter", "clean", "rounds=3", seed=6)
    (drawn,) = drawn_by(run)
    assert torch.equal(drawn.long(), run.learner.drawn.get(torch.arange(15).unsqueeze(1), torch.arange(40)))
    assert exposure(run)["draws_per_client"] == float(drawn.sum()) / 15


def test_runs_counted_together_are_counted_as_each_alone(small):
    """With other rounds, seeds, participants and numbers of negatives."""
    runs = [
        finished(small, "fedmf", "clean", *QUICK, *FEW),
        finished(small, "fedmf", "clean", *QUICK, *FEW, seed=1),
        finished(small, "fedrecon", "clean", *QUICK, *FEW),
        finished(small, "draw-counter", "clean", "rounds=6"),
        finished(small, "draw-counter", "clean", "rounds=2", "negatives=1", seed=2),
        finished(small, "popularity", "clean"),
    ]
    together = draw_counts(runs[0].clients, [Drawers.of(run) for run in runs])
    for run, drawn in zip(runs, together, strict=True):
        (by_itself,) = drawn_by(run)
        assert same_counts(drawn, counts_of(run, by_itself))
        assert exposure_summary(drawn, candidate_scores(run)) == exposure(run)
    assert len({int(drawn.total.sum()) for drawn in together}) > 3


@pytest.mark.parametrize("pairs", [1, 40 * 2 * 4], ids=["one client at a time", "four at a time"])
def test_few_clients_at_a_time_are_counted_as_all_together(small, monkeypatch, pairs):
    """15 clients and 40 items; in some rounds none of those that are counted together takes part."""
    runs = [
        finished(small, "fedmf", "clean", *QUICK, *FEW),
        finished(small, "fedrecon", "clean", *QUICK, *FEW),
    ]
    whole = [counts_of(run, drawn) for run, drawn in zip(runs, drawn_by(*runs), strict=True)]
    monkeypatch.setattr("fedrec.audit.exposure._COUNTED_AT_ONCE", pairs)
    pieces = draw_counts(runs[0].clients, [Drawers.of(run) for run in runs])
    assert all(same_counts(one, other) for one, other in zip(pieces, whole, strict=True))


def test_runs_that_drew_the_same_are_counted_once(small):
    runs = [
        finished(small, "fedmf", "clean", *QUICK, *FEW),
        finished(small, "fedmf", "clean", "rounds=4", "d=3", "local_epochs=1", *FEW),
        finished(small, "fedmf", "clean", *QUICK, *FEW, seed=1),
    ]
    first, second, third = draw_counts(runs[0].clients, [Drawers.of(run) for run in runs])
    assert first is second
    assert first is not third


def test_a_run_taken_up_again_knows_who_took_part_before(small, tmp_path, monkeypatch):
    changes = (*QUICK, *FEW)
    whole = finished(small, "fedmf", "published", *changes)
    root = tmp_path / "killed"
    (root / "data").mkdir(parents=True)
    (root / "data/made").symlink_to(small / "data/made")
    dies_in_round(monkeypatch, 3)
    with pytest.raises(pytest.fail.Exception, match="killed"):
        finished(root, "fedmf", "published", *changes, checkpoint_seconds=0.0)
    assert list(root.rglob("checkpoint.safetensors"))
    resumed = finished(root, "fedmf", "published", *changes)
    took_part = resumed.tensors["clients/took_part"]
    assert took_part.sum(1).tolist() == [int(15 * 0.3)] * 4
    assert torch.equal(took_part, whole.tensors["clients/took_part"])
    assert exposure(resumed) == exposure(whole)


# Correlations


def test_equal_values_share_their_mean_rank():
    values = torch.tensor([[3.0, 1.0, 3.0, 2.0, 3.0], [0.0, 0.0, 0.0, 0.0, 0.0]])
    assert mean_ranks(values).tolist() == [[4, 1, 4, 2, 4], [3, 3, 3, 3, 3]]
    drawn = torch.randint(0, 12, (40, 30), generator=torch.Generator().manual_seed(0)).double()
    assert np.array_equal(mean_ranks(drawn).numpy(), stats.rankdata(drawn.numpy(), axis=1))


def test_scores_and_draws_correlate_as_spearman_says(noise):
    run = alone(noise, "published")
    (drawn,) = draw_counts(run.clients, [Drawers.of(run)])
    counts, scores = drawn.candidates["test"], candidate_scores(run)
    expected = [stats.spearmanr(*row).statistic for row in zip(counts.numpy(), scores.numpy(), strict=True)]
    assert len(counts[0].unique()) < len(counts[0])
    assert score_correlation(drawn, scores) == pytest.approx(np.array(expected), abs=1e-9)


def test_nothing_follows_what_does_not_vary(small):
    run = finished(small, "draw-counter", "clean", "rounds=3", seed=6)
    alike = torch.ones(15, 40, dtype=torch.int32)
    drawn = counts_of(run, torch.cat((drawn_by(run)[0][:1], alike[1:])))
    scores = candidate_scores(run)
    follows = score_correlation(drawn, scores)
    assert follows[0] == pytest.approx(-1)
    assert np.isnan(follows[1:]).all()
    assert exposure_summary(drawn, scores)["score_follows_draws"] == {"mean": pytest.approx(-1), "clients": 1}
    nobody = exposure_summary(counts_of(run, alike), scores)["score_follows_draws"]
    assert json.loads(json.dumps(nobody, allow_nan=False)) == {"mean": None, "clients": 0}


# Hits that vanish, by hand


def by_hand(results, kind, method="fedmf", **more):
    run = RunId(PAPER, "ml-100k", full_name(kind, PAPER), method, 0)
    return RunRecord(write_run(results, run, METHODS, **more).folder)


def test_vanished_hits_by_hand(tmp_path):
    """Users 0 to 4: stays, vanishes (11 is none), is new, never was one; the fifth is in one run alone."""
    published = by_hand(tmp_path, "published", ranks=(10, 1, 11, 30, 1))
    exposed = by_hand(tmp_path, "only-pool", ranks=(1, 11, 10, 12))
    assert vanished(published, exposed) == {"hits": 2, "vanished": 1, "share": 0.5, "new": 1, "clients": 4}


def test_both_runs_are_read_by_the_first_ones_rule(tmp_path):
    published = by_hand(tmp_path, "published", ranks=(50, 50), ranks_at={"best_test": (1, 1)})
    exposed = by_hand(tmp_path, "only-pool", ranks=(1, 1), ranks_at={"best_test": (50, 1)})
    assert vanished(published, exposed)["vanished"] == 1


def test_no_hits_have_no_share_that_vanishes(tmp_path):
    published = by_hand(tmp_path, "published", ranks=(20, 20))
    found = vanished(published, by_hand(tmp_path, "only-pool", ranks=(1, 20)))
    assert (found["hits"], found["share"], found["new"]) == (0, None, 1)


@pytest.mark.parametrize(
    ("kind", "method", "said"),
    [("clean", "fedmf", "(protocol)"), ("only-pool", "fedmf[d=8]", "(method, settings)")],
)
def test_runs_that_differ_in_more_than_the_pool_are_refused(tmp_path, kind, method, said):
    published = by_hand(tmp_path, "published")
    with pytest.raises(ComparisonError, match=re.escape(f"in more than the pool of negatives {said}")):
        vanished(published, by_hand(tmp_path, kind, method))


# RunRecord runs


def test_a_run_that_is_not_finished_says_how_to_build_it(tmp_path):
    with pytest.raises(ResultError, match=r"run.json: this run is not finished. Build it with: snakemake"):
        _ = RunRecord(tmp_path / "runs/pfedclr/made/clean/fedmf/seed0").summary


def test_a_split_that_is_missing_or_has_changed_is_named(small, tmp_path):
    run = finished(small, "draw-counter", "clean", "rounds=3", seed=6)
    with pytest.raises(
        ResultError,
        match=r"its split is not in .*clean\. Give the dataset's folder, .* --data FOLDER, in Python data=",
    ):
        _ = RunRecord(run.folder, tmp_path).split
    write_split(uniform_noise(users=14, items=40, per_user=8, candidates=10), tmp_path / "clean")
    with pytest.raises(ResultError, match=r"was trained on another split .* Train it again"):
        _ = RunRecord(run.folder, tmp_path).split


def test_items_drawn_equally_often_are_hits_as_often_as_their_orders_say(small):
    run = finished(small, "draw-counter", "clean", "rounds=1")
    drawn = torch.zeros(15, 40, dtype=torch.int32)
    # Nothing drawn: 10 of 11 places are hits.
    assert draw_counter_hits(counts_of(run, drawn))["hr@10"] == pytest.approx(10 / 11)
    assert draw_counter_hits(counts_of(run, drawn))["chance"] == pytest.approx(10 / 11)
    # The test item drawn once, no other: it is last. Its candidates drawn too: it is one of 11 equals again.
    drawn.scatter_(1, run.clients.held_out["test"].unsqueeze(1), 1)
    assert draw_counter_hits(counts_of(run, drawn))["hr@10"] == 0
    drawn.scatter_(1, run.clients.candidates["test"], 1)
    assert draw_counter_hits(counts_of(run, drawn))["hr@10"] == pytest.approx(10 / 11)
