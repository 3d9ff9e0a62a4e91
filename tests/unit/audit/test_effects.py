"""Effects of claims: which rival, which users and seeds, and what is not kept."""

import numpy as np
import pyarrow as pa
import pytest

from fedrec.audit.effects import NOT_KEPT, UNEVEN, Evidence
from fedrec.audit.verdicts import UNTESTED
from fedrec.config.methods import resolve
from fedrec.errors import ResultError
from fedrec.evaluation.metrics import METRICS, metrics_of, per_user
from fedrec.files.checked_json import read_checked_json, write_checked_json
from fedrec.files.parquet import read_table, write_table
from fedrec.runs.record import UserRanks
from tests.federations import METHODS
from tests.made_claims import GAIN, HIT, MISS, NOISE, judged, narrow, reproduce, runs_under, train, users

LOW_RANK = narrow("pfedclr-low-rank-helps")


def clean(results, claim=GAIN, metric="hr@10", **changes):
    return judged(results, claim, metric, **changes).findings["clean"].effect


def test_the_rival_is_the_best_on_validation_and_not_on_test(tmp_path):
    lines = {"w/ CLR": users(50), "FedMF": users(40), "w/ AF": users(60), "w/ CF": users(20)}
    train(tmp_path, LOW_RANK, lines, validation={"FedMF": 0.5, "w/ AF": 0.4, "w/ CF": 0.1})
    found = clean(tmp_path, LOW_RANK)
    assert (found.compared.rival, found.base) == ("FedMF", 0.4)
    assert found.value == pytest.approx(0.1)


@pytest.mark.parametrize(("stated", "beta"), [(0.6, 0.01), (0.2, 0)])
def test_with_tuned_settings_those_of_the_paper_compete_on_validation(tmp_path, stated, beta):
    """The line without noise decides for both: noise is measured on one and the same settings."""
    reproduce(tmp_path, NOISE)
    train(tmp_path, NOISE, {"w/ LDP": users(30), "w/o LDP": users(40)}, keys=("tuned",))
    own = {"w/ LDP": users(50), "w/o LDP": users(50)}
    train(tmp_path, NOISE, own, keys=("clean",), validation={"w/ LDP": 0.9, "w/o LDP": stated})
    compared = judged(tmp_path, NOISE).findings["tuned"].effect.compared
    for run in (*compared.runs, *compared.runs_against):
        assert resolve(METHODS, run.method, run.paper, run.dataset)[0]["beta"] == beta


def test_of_a_gain_each_line_has_the_settings_that_are_better_for_it(tmp_path):
    claim = narrow("pfedrec-dualper-helps-fedmf")
    reproduce(tmp_path, claim)
    tuned = {"FedMF": users(30), "FedMF+DualPer": users(60)}
    train(tmp_path, claim, tuned, keys=("tuned",))
    train(tmp_path, claim, {"FedMF": users(50), "FedMF+DualPer": users(20)}, keys=("clean",))
    effect = judged(tmp_path, claim).findings["tuned"].effect
    assert (effect.base, effect.value) == (pytest.approx(0.5), pytest.approx(0.1))


def test_validation_is_of_the_mean_of_seeds(tmp_path):
    lines = {"w/ CLR": users(50), "FedMF": users(40), "w/ AF": users(60), "w/ CF": users(20)}
    for seed, validation in (
        (0, {"FedMF": 0.9, "w/ AF": 0.5, "w/ CF": 0}),
        (1, {"FedMF": 0.2, "w/ AF": 0.7, "w/ CF": 0}),
    ):
        train(tmp_path, LOW_RANK, lines, seeds=(seed,), validation=validation)
    assert clean(tmp_path, LOW_RANK, seeds=(0, 1)).compared.rival == "w/ AF"
    assert clean(tmp_path, LOW_RANK, seeds=(0,)).compared.rival == "FedMF"


def test_every_protocol_has_a_rival_of_its_own(tmp_path):
    lines = {"w/ CLR": users(90), "FedMF": users(10), "w/ AF": users(20), "w/ CF": users(30)}
    train(tmp_path, LOW_RANK, lines, keys=("published",))
    train(tmp_path, LOW_RANK, lines | {"w/ CLR": users(15), "FedMF": users(40)}, keys=("clean",))
    found = judged(tmp_path, LOW_RANK)
    assert found.published.effect.compared.rival == "w/ CF"
    assert found.published.effect.value == pytest.approx(0.6)
    assert clean(tmp_path, LOW_RANK).compared.rival == "FedMF"
    assert clean(tmp_path, LOW_RANK).value == pytest.approx(-0.25)


def test_users_are_paired_under_each_seed_and_resampled_with_the_seeds(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": [MISS, MISS], "w/ CF": [HIT, MISS]}, seeds=(0,))
    train(tmp_path, GAIN, {"w/ AF": [MISS, MISS], "w/ CF": [MISS, HIT]}, seeds=(1,))
    found = clean(tmp_path, seeds=(0, 1))
    # In the mean of seeds each user gains one half; but other users under another seed may gain all or nothing.
    assert (found.value, found.low, found.high) == (0.5, 0, 1)
    assert (found.users, found.compared.seeds) == (2, [0, 1])


def test_the_interval_of_one_seed_is_over_users_alone(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    found = clean(tmp_path)
    # 60 of 100 users gain: the standard error of a share of 0.6 is 0.049.
    assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.504, 0.696), abs=0.01)
    assert found.compared.seeds == [0]


def test_seeds_that_disagree_make_the_interval_wider(tmp_path):
    for seed in range(5):
        alike, apart = tmp_path / "alike", tmp_path / "apart"
        train(alike, GAIN, {"w/ AF": users(400, 1000), "w/ CF": users(500, 1000)}, seeds=(seed,))
        hits = 500 + 50 * (seed - 2)
        train(apart, GAIN, {"w/ AF": users(400, 1000), "w/ CF": users(hits, 1000)}, seeds=(seed,))
    one, other = (clean(results, seeds=range(5)) for results in (alike, apart))
    assert one.value == pytest.approx(other.value) == pytest.approx(0.1)
    assert other.high - other.low > 1.5 * (one.high - one.low)


def test_the_p_asks_for_the_effect_that_is_needed(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    assert (clean(tmp_path).least, clean(tmp_path).p) == (0, pytest.approx(2 / 10_001))
    train(tmp_path, GAIN, {"w/ AF": users(50), "w/ CF": users(50)})
    assert clean(tmp_path).p == 1
    noise = narrow("pfedclr-noise-costs-little")
    train(tmp_path, noise, {"w/o LDP": users(400, 400), "w/ LDP": users(380, 400)})
    # A twentieth of 1 may be lost, and is.
    found = clean(tmp_path, noise)
    assert found.least == pytest.approx(-0.05)
    assert found.p > 0.9


def rewrite(results, name, key, change):
    """Change the table of ranks of a made run."""
    (run,) = runs_under(GAIN, name, key)
    path = results / run.folder / "ranks.parquet"
    write_table(path, change(read_table(path)[0]), {})


def test_users_are_paired_by_their_number_and_not_by_their_place(tmp_path):
    alike = users(50)
    train(tmp_path, GAIN, {"w/ AF": alike, "w/ CF": alike})
    rewrite(tmp_path, "w/ CF", "clean", lambda table: table.take(list(range(table.num_rows))[::-1]))
    found = clean(tmp_path)
    assert (found.value, found.low, found.high) == (0, 0, 0)


def test_runs_on_other_users_are_refused(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(5, 10), "w/ CF": users(5, 11)})
    with pytest.raises(ResultError, match=r"its users differ from those of .* train it again"):
        judged(tmp_path, GAIN)


def test_ranks_are_those_of_the_round_the_protocol_reports(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(0), "w/ CF": users(0)})

    def only_validation(table):
        at = np.array(table["at"].to_pylist())
        rank = pa.array(np.where(at == "best_validation", HIT, MISS).astype(np.float32))
        return table.set_column(table.schema.get_field_index("test_rank"), "test_rank", rank)

    for key in ("published", "clean"):
        rewrite(tmp_path, "w/ CF", key, only_validation)
    # The papers' protocol reports the best round on test, the clean one on validation.
    assert judged(tmp_path, GAIN).published.effect.value == 0
    assert clean(tmp_path).value == 1


def test_an_exact_metric_is_of_ranks_among_all_items(tmp_path):
    lines = {"w/ AF": users(20), "w/ CF": users(80)}
    train(tmp_path, GAIN, lines, exact=users(30))
    assert clean(tmp_path).value == pytest.approx(0.6)
    assert clean(tmp_path, metric="exact_hr@10").value == 0


def test_exact_ranks_that_are_not_kept_are_the_reason(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20)})
    train(tmp_path, GAIN, {"w/ CF": users(80)}, has_exact=False)
    found = judged(tmp_path, GAIN, "exact_hr@10").findings["clean"]
    assert (found.effect, found.verdict, found.reason) == (None, UNTESTED, NOT_KEPT)
    assert clean(tmp_path).value == pytest.approx(0.6)


def test_nothing_is_said_by_exact_ranks_where_candidates_are_never_drawn(tmp_path):
    """There a counter of draws finds the held-out item and its candidates among all items."""
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    (run,) = runs_under(GAIN, "w/ CF", "clean")
    path = tmp_path / run.folder / "run.json"
    said = read_checked_json(path)
    pool = {"negative_pool": "exclude_train_and_candidates"}
    write_checked_json(path, said | {"protocol": said["protocol"] | pool})
    found = judged(tmp_path, GAIN, "exact_hr@10").findings["clean"]
    assert (found.effect, found.verdict, found.reason) == (None, UNTESTED, UNEVEN)
    assert judged(tmp_path, GAIN).findings["clean"].decides


def test_a_claim_about_the_catalogue_is_judged_by_ranks_in_it_alone(tmp_path, monkeypatch):
    claim = narrow("pfedrec-beats-all-in-catalogue")
    train(tmp_path, claim, dict.fromkeys(claim.lines, users(2, 5)))

    def ranks(_self, run, *, catalogue):
        hit = run.method == "pfedrec" and catalogue
        return UserRanks(np.arange(5), np.full(5, HIT if hit else MISS, dtype=np.float32))

    monkeypatch.setattr(Evidence, "ranks", ranks)
    # The helper finds one judgement; there is none by ranks among candidates.
    assert clean(tmp_path, claim, "exact_hr@10").value == 1
    with pytest.raises(ValueError, match="not enough values"):
        judged(tmp_path, claim, "hr@10")


def test_an_effect_names_the_runs_of_both_sides(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)}, seeds=(0, 1))
    found = clean(tmp_path, seeds=(0, 1)).compared
    assert list(found.runs) == runs_under(GAIN, GAIN.line, "clean", seeds=(0, 1))
    assert list(found.runs_against) == runs_under(GAIN, found.rival, "clean", seeds=(0, 1))
    assert len(found.runs) == 2


def test_with_runs_given_no_other_run_is_read(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    both = judged(tmp_path, GAIN)
    published = {run for run in both.runs if run.protocol != "clean"}
    found = judged(tmp_path, GAIN, runs=published)
    assert (found.findings["clean"].verdict, found.findings["clean"].effect) == (UNTESTED, None)
    assert found.published == both.published


def test_a_run_without_its_summary_is_not_finished(tmp_path):
    train(tmp_path, GAIN, {"w/ AF": users(20), "w/ CF": users(80)})
    (run,) = runs_under(GAIN, "w/ CF", "clean")
    (tmp_path / run.folder / "run.json").unlink()
    assert clean(tmp_path) is None


@pytest.mark.parametrize("metric", METRICS)
def test_users_add_up_to_the_metric(metric):
    ranks = np.array([1, 2, 2.5, 5, 9.5, 10, 10.5, 20, 21, 99, 2], dtype=np.float32)
    found = per_user(ranks, metric)
    assert found.shape == ranks.shape
    assert found.mean() == pytest.approx(metrics_of(ranks)[metric])
    assert (found[1], found[-2]) == (found[-1], 0)
