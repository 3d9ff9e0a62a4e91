"""An engine that does not train as the plain loop does is found before it trains a run, and a slower one takes over."""

import itertools
import json
import logging
import os
import random
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch

from fedrec.cli.main import main
from fedrec.errors import FederationError, FedrecError, NoCompilerError
from fedrec.federation.comparison import relative_differences as apart
from fedrec.federation.engines.batched.engine import BatchedEngine, BlockRound
from fedrec.federation.engines.engine import engine_named
from fedrec.federation.engines.fused.engine import FusedRound
from fedrec.federation.engines.loop import LoopEngine
from fedrec.federation.federation import Federation
from fedrec.federation.model.weights import mean_entropy
from fedrec.federation.sample_training import sample_clients, sample_trainings
from fedrec.files.checked_json import write_checked_json
from fedrec.methods.fedmf import FedMF
from fedrec.native import cache
from fedrec.native.cache import CACHE
from fedrec.plan.fingerprint import run_fingerprint
from fedrec.plan.runs import FILES
from fedrec.plan.train_request import TrainRequest
from fedrec.runs import engine_check
from fedrec.runs.engine_check import CheckedEngine
from fedrec.runs.registry import make_method
from fedrec.runs.train import train
from tests.conftest import ROOT
from tests.federations import (
    METHODS,
    clients_of,
    gentle,
    planted_blocks,
    settings_of,
    uniform_noise,
    values_of,
)
from tests.once import once_for_all_workers
from tests.trained_runs import made_results

GIB = 2**30
SETTINGS = settings_of("fedmf", *gentle("fedmf", "d=4", "local_epochs=3", "batch_size=16"))
CLIENTS = clients_of(planted_blocks(users=12, items=60))
METHODS_FILE = ROOT / "config/methods.yaml"
QUICK = ("d=4", "local_epochs=1", "rounds=3")


@pytest.fixture(autouse=True)
def _nothing_is_known(tmp_path, monkeypatch):
    """No verdict of another test is found; compiled kernels are."""
    kernels = cache.folder()
    monkeypatch.setattr(cache, "folder", lambda: kernels)
    monkeypatch.setenv(cache.CACHE, str(tmp_path / "cache"))


@pytest.fixture
def compared(monkeypatch):
    """The engines that are compared with the loop, in order."""
    names, of = [], engine_check._Comparison.of

    def listened(self, engine):
        names.append(engine.name)
        return of(self, engine)

    monkeypatch.setattr(engine_check._Comparison, "of", listened)
    return names


def plant(monkeypatch, round_class, factor=1.01):
    """Let the fits of an engine end with other numbers."""
    fit = round_class.fit

    def wrong(self, operation):
        fit(self, operation)
        self.block.values["p"] = self.block.values["p"] * factor

    monkeypatch.setattr(round_class, "fit", wrong)


def checked_engine(name="fused", settings=SETTINGS, **kwargs):
    code = partial(run_fingerprint, "fedmf")
    return CheckedEngine(engine_named(name, GIB, GIB), "fedmf", settings, (GIB, GIB), code, **kwargs)


def federation_of(engine, method=FedMF, settings=SETTINGS):
    return Federation(method(settings, CLIENTS.items), CLIENTS, engine, settings, 0)


def trained(engine, method=FedMF, rounds=2, settings=SETTINGS):
    federation = federation_of(engine, method, settings)
    for round_ in range(1, rounds + 1):
        federation.train_round(round_)
    return federation


def test_an_engine_that_agrees_trains_to_the_bytes_that_it_has_unchecked(compared):
    torch.manual_seed(3), random.seed(3), np.random.seed(3)  # noqa: NPY002
    drawn = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    plain, found = trained(engine_named("fused", GIB, GIB)), trained(checked_engine())
    assert compared == ["fused"]
    assert all(share == 0 for share in apart(values_of(plain), values_of(found)).values())
    assert torch.equal(drawn[0], torch.get_rng_state())
    assert drawn[1:] == (random.getstate(), np.random.get_state()[1].tolist())  # noqa: NPY002
    assert torch.get_default_dtype() == torch.float32
    assert found.notes(2)["self_check"] == {"outcome": "agreed", "tolerance": 1e-7}


def test_a_wrong_kernel_is_found_and_the_batched_engine_trains(monkeypatch, caplog):
    plain = trained(BatchedEngine(GIB, GIB))
    plant(monkeypatch, FusedRound)
    with caplog.at_level(logging.WARNING):
        found = trained(checked_engine())
    assert all(share == 0 for share in apart(values_of(plain), values_of(found)).values())
    (said,) = [each.message for each in caplog.records if "plain loop" in each.message]
    assert "fedmf" in said
    assert "'fused'" in said
    assert "'batched' trains this run." in said
    assert "p of client" in said or "scores of client" in said
    noted = found.notes(2)["self_check"]
    assert (noted["outcome"], noted["trained_by"]) == ("fell back", ["batched"])
    assert [each["engine"] for each in noted["differing"]] == ["fused"]
    assert noted["differing"][0]["difference"] > 1e-3


def test_where_both_are_wrong_the_loop_trains(monkeypatch):
    plain = trained(LoopEngine())
    plant(monkeypatch, FusedRound)
    plant(monkeypatch, BlockRound)
    found = trained(checked_engine())
    assert all(share == 0 for share in apart(values_of(plain), values_of(found)).values())
    assert found.notes(2)["self_check"]["trained_by"] == ["loop"]


def test_an_engine_that_ends_with_an_error_is_not_used(monkeypatch):
    def fails(_self, _fit):
        raise AssertionError("the engine's own mistake")

    monkeypatch.setattr(FusedRound, "fit", fails)
    found = trained(checked_engine(), rounds=1)
    (noted,) = found.notes(1)["self_check"]["differing"]
    assert noted["where"] == "it fails with AssertionError: the engine's own mistake"


def test_a_difference_of_rounding_is_none(monkeypatch):
    plant(monkeypatch, FusedRound, factor=1 + 1e-11)
    assert trained(checked_engine(), rounds=1).notes(1)["self_check"]["outcome"] == "agreed"


def test_verdicts_are_kept_for_further_runs(compared, monkeypatch):
    trained(checked_engine())
    trained(checked_engine())
    assert compared == ["fused"]
    plant(monkeypatch, FusedRound)
    # Code that was edited is compared again; here it is the code of a process, which no fingerprint shows.
    monkeypatch.setattr(engine_check, "code_fingerprint", lambda _: "another")
    first = trained(checked_engine()).notes(2)["self_check"]
    second = trained(checked_engine()).notes(2)["self_check"]
    assert compared == ["fused", "fused", "batched"]
    assert first == second


@pytest.mark.parametrize("change", ["d=5", "batch_size=7", "optimiser=sgd"])
def test_other_settings_are_compared_again(compared, change):
    trained(checked_engine(), rounds=1)
    settings = settings_of("fedmf", *gentle("fedmf", "local_epochs=3", "d=4", "batch_size=16", change))
    trained(checked_engine(settings=settings), rounds=1, settings=settings)
    assert compared == ["fused", "fused"]


def test_another_rate_shares_the_verdict_but_none_does_not(compared):
    for rate in ("0.01", "0.3", "0"):
        settings = settings_of("fedmf", *gentle("fedmf", "local_epochs=3", "d=4", f"rate={rate}"))
        trained(checked_engine(settings=settings), rounds=1, settings=settings)
    assert compared == ["fused", "fused"]


def test_what_a_composition_is_called_does_not_matter(compared):
    for beta in ("0.01", "0.3"):
        name = f"pfedclr[beta={beta}]"
        settings = settings_of("pfedclr", *gentle("pfedclr", "local_epochs=1", "d=4", f"beta={beta}"))
        method = make_method(name, settings, CLIENTS.items)
        assert method is not None
        code = partial(run_fingerprint, name)
        engine = CheckedEngine(engine_named("fused", GIB, GIB), name, settings, (GIB, GIB), code)
        Federation(method, CLIENTS, engine, settings, 0).train_round(1)
    assert compared == ["fused"]


class Branching(FedMF):
    """Its score takes another way from a rate on."""

    def score(self, w, items):
        scores = super().score(w, items)
        return scores if self.settings["rate"] < 0.1 else scores.tanh()


def test_a_rate_that_decides_a_branch_is_compared_again(compared):
    for rate in ("0.01", "0.02", "0.3"):
        settings = settings_of("fedmf", *gentle("fedmf", "local_epochs=3", "d=4", f"rate={rate}"))
        trained(checked_engine(settings=settings), Branching, rounds=1, settings=settings)
    assert compared == ["fused", "fused"]


@pytest.mark.parametrize("damage", ["", "{", "{}", "edited", "sealed anew"])
def test_a_damaged_verdict_is_ignored(compared, tmp_path, damage):
    trained(checked_engine(), rounds=1)
    (kept,) = (tmp_path / "cache/checks").glob("*.json")
    content = json.loads(kept.read_text())
    assert content["agrees"]
    if damage == "sealed anew":
        write_checked_json(
            kept, {key: value for key, value in content.items() if key != "sha256"} | {"difference": "x"}
        )
    else:
        kept.write_text(json.dumps({**content, "agrees": False}) if damage == "edited" else damage)
    assert trained(checked_engine(), rounds=1).notes(1)["self_check"]["outcome"] == "agreed"
    assert compared == ["fused", "fused"]


def test_what_a_failing_compiler_left_to_another_engine_is_compared_again(compared, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr("fedrec.federation.engines.fused.engine.compiled_fit", refuse_to_compile)
        assert trained(checked_engine(), rounds=1).notes(1)["self_check"]["outcome"] == "agreed"
    plant(monkeypatch, FusedRound)
    assert trained(checked_engine(), rounds=1).notes(1)["self_check"]["outcome"] == "fell back"
    assert compared == ["fused", "fused", "batched"]


def refuse_to_compile(*_given, **_how):
    raise NoCompilerError("cc is killed")


@pytest.mark.parametrize("kind", ["pipe", "link", "writable by others"])
def test_a_verdict_that_others_may_have_written_is_ignored(compared, tmp_path, kind):
    trained(checked_engine(), rounds=1)
    (kept,) = (tmp_path / "cache/checks").glob("*.json")
    if kind == "pipe":
        kept.unlink()
        os.mkfifo(kept)
    elif kind == "link":
        kept.symlink_to(kept.rename(tmp_path / "elsewhere"))
    else:
        kept.chmod(0o666)
    for _ in range(2):
        trained(checked_engine(), rounds=1)
    assert compared == ["fused", "fused"], "it is compared once more and kept again"


def test_a_verdict_is_believed_whatever_the_umask_is(compared):
    before = os.umask(0)
    try:
        trained(checked_engine(), rounds=1)
    finally:
        os.umask(before)
    trained(checked_engine(), rounds=1)
    assert compared == ["fused"]


def test_a_user_without_a_home_has_engines_compared_all_the_same(compared, monkeypatch):
    def none():
        raise RuntimeError("there is no home")

    monkeypatch.delenv(CACHE)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", none)
    for _ in range(2):
        trained(checked_engine(), rounds=1)
    assert compared == ["fused", "fused"]


def test_a_folder_that_cannot_be_written_is_no_error(tmp_path, compared):
    (tmp_path / "cache").write_text("in the way")
    trained(checked_engine(), rounds=1)
    trained(checked_engine(), rounds=1)
    assert compared == ["fused", "fused"]


class Changing(FedMF):
    """Every round reads another value."""

    def local_round(self, client):
        self.kept = [3.0 / client.round_]
        super().local_round(client)

    def loss(self, w, batch):
        return mean_entropy(self.score(w, batch.items), batch) * self.kept[0]


def test_a_loss_that_changes_is_compared_more_than_once_and_not_in_every_round(compared):
    settings = settings_of("fedmf", *gentle("fedmf", "d=4", "local_epochs=1", "optimiser=sgd"))
    expected = trained(LoopEngine(), Changing, 9, settings)
    found = trained(checked_engine(settings=settings), Changing, 9, settings)
    assert max(apart(values_of(expected), values_of(found)).values()) < 1e-5
    # In rounds 1, 2, 3, 4 and 8.
    assert compared == ["fused"] * 5


class OfGlobal(FedMF):
    strength = 1.0

    def local_round(self, client):
        type(self).strength = 3.0 / client.round_
        super().local_round(client)

    def loss(self, w, batch):
        return mean_entropy(self.score(w, batch.items), batch) * self.strength


def test_what_the_next_round_leaves_in_a_class_is_taken_back():
    settings = settings_of("fedmf", *gentle("fedmf", "d=4", "local_epochs=1", "optimiser=sgd"))
    expected = trained(BatchedEngine(GIB, GIB), OfGlobal, 2, settings)
    found = trained(checked_engine("batched", settings), OfGlobal, 2, settings)
    assert all(share == 0 for share in apart(values_of(expected), values_of(found)).values())


COUNTED = {"rounds": 0}


class Counting(FedMF):
    """Counts its rounds in its class and in its module."""

    counter = itertools.count(1)

    def local_round(self, client):
        COUNTED["rounds"] += 1
        self.factor = 1 / (next(type(self).counter) + COUNTED["rounds"])
        super().local_round(client)

    def loss(self, w, batch):
        return mean_entropy(self.score(w, batch.items) * self.factor, batch)


def test_what_a_comparison_counts_in_classes_and_modules_is_not_counted_for_the_run():
    found, counts = [], []
    for engine in (BatchedEngine(GIB, GIB), checked_engine("batched")):
        Counting.counter, COUNTED["rounds"] = itertools.count(1), 0
        found.append(values_of(trained(engine, Counting)))
        counts.append((COUNTED["rounds"], next(Counting.counter)))
    assert counts[0] == counts[1]
    assert all(share == 0 for share in apart(*found).values())


class Mistaken(FedMF):
    def loss(self, w, batch):
        return mean_entropy(self.score(w, batch.items), batch) + w.p[
            ..., 99 if batch.labels.shape[-1] == 16 else 0
        ].squeeze(-1)


def test_a_mistake_of_the_method_is_raised_as_the_loop_raises_it():
    with pytest.raises(FedrecError, match=r"round 1, client \d+: .*99") as raised:
        trained(checked_engine("batched"), Mistaken, 1)
    assert "plain loop" not in str(raised.value)


class Uncopied(FedMF):
    def __deepcopy__(self, memo):
        raise TypeError("it is one of a kind")


def test_a_method_that_cannot_be_copied_is_trained_by_the_loop():
    expected, found = trained(LoopEngine(), Uncopied), trained(checked_engine(), Uncopied)
    assert all(share == 0 for share in apart(values_of(expected), values_of(found)).values())
    assert "one of a kind" in found.notes(2)["self_check"]["differing"][0]["where"]


def test_few_clients_differ_in_size_and_one_has_a_single_interaction():
    clients = clients_of(uniform_noise(users=40, items=90, per_user=30, candidates=9))
    few = sample_clients(clients, 10, single=True)
    assert len(few) == 4
    assert sorted(few.sizes.tolist()) == [1, 10, 10, 10]
    items = [set(few.train_item[a:b].tolist()) for a, b in zip(few.start[:-1], few.start[1:], strict=True)]
    for user, own in zip(few.user.tolist(), items, strict=True):
        who = clients.user.tolist().index(user)
        assert own <= set(clients.train_item[clients.start[who] : clients.start[who + 1]].tolist())
    assert min(sample_clients(clients, 10, single=False).sizes) > 1


def test_a_shadow_trains_the_next_round_too_but_none_after_the_last():
    method = FedMF(SETTINGS, CLIENTS.items)
    assert next(sample_trainings(method, CLIENTS, SETTINGS, 0, 3)).rounds == (3, 4)
    assert next(sample_trainings(method, CLIENTS, {**SETTINGS, "rounds": 3}, 0, 3)).rounds == (3,)


@pytest.fixture(scope="session")
def splits(tmp_path_factory):
    def build(root):
        made_results(root, planted_blocks, users=12, items=60)

    return once_for_all_workers(tmp_path_factory, "to check on", build) / "data/made"


@pytest.fixture
def run(splits, tmp_path):
    def train_into(out="run", **changes):
        asked = {
            "data": splits, "method": "fedmf", "paper": "fedem", "protocol": "clean", "seed": 0,
            "changes": QUICK, "device": "cpu", "checkpoint_seconds": 0.0,
        }  # fmt: skip
        return train(TrainRequest(**asked | {"out": tmp_path / out} | changes), METHODS)

    return train_into


def test_a_run_says_what_trained_it(run, monkeypatch):
    assert run()["self_check"]["outcome"] == "agreed"
    assert "self_check" not in run("by-loop", engine="loop")
    plant(monkeypatch, FusedRound)
    monkeypatch.setattr(engine_check, "code_fingerprint", lambda _: "another")
    noted = run("fallen")
    assert (noted["engine"], noted["self_check"]["trained_by"]) == ("fused", ["batched"])


def test_a_strict_run_ends_with_an_error(splits, tmp_path, monkeypatch, capsys):
    plant(monkeypatch, FusedRound)
    words = ["train", f"--data={splits}", "--method=fedmf", "--paper=fedem", "--protocol=clean", "--device=cpu",
             *(f"--set={change}" for change in QUICK), f"--methods={METHODS_FILE}"]  # fmt: skip
    assert main([*words, f"--out={tmp_path / 'strict'}", "--strict"]) == 1
    said = capsys.readouterr().err
    assert "the engine 'fused' does not give the numbers of the plain loop" in said
    assert not (tmp_path / "strict/run.json").exists()
    assert main([*words, f"--out={tmp_path / 'lenient'}"]) == 0


def test_strict_is_a_word_of_a_request_and_no_part_of_a_list(tmp_path):
    request = TrainRequest(data=tmp_path, method="fedmf", protocol="clean", seed=0, out=tmp_path, strict=True)
    assert "--strict" in request.arguments()
    assert "strict" not in request.as_line()


def test_a_run_that_continues_has_the_files_of_an_unbroken_one(run, tmp_path, monkeypatch):
    run("unbroken")
    train_round = Federation.train_round

    def dying(self, round_):
        if round_ == 3:
            raise KeyboardInterrupt
        return train_round(self, round_)

    with monkeypatch.context() as patch:
        patch.setattr(Federation, "train_round", dying)
        with pytest.raises(KeyboardInterrupt):
            run("resumed")
    run("resumed")
    for name in set(FILES) - {"run.json", "timing.parquet"}:
        assert (tmp_path / "unbroken" / name).read_bytes() == (tmp_path / "resumed" / name).read_bytes(), name
    first, second = (
        json.loads((tmp_path / each / "run.json").read_text()) for each in ("unbroken", "resumed")
    )
    assert first["self_check"] == second["self_check"]


def test_strict_refuses_in_the_first_round(monkeypatch):
    plant(monkeypatch, FusedRound)
    with pytest.raises(FederationError, match=r"Without --strict, a slower engine would train the run\."):
        federation_of(checked_engine(strict=True)).train_round(1)
