"""What runs keep for figures: the right numbers, the same from both engines, at no one else's cost."""

from dataclasses import replace

import pytest
import torch

from fedrec.config.papers import load_papers
from fedrec.config.records import merged_records, spelled_records
from fedrec.data.split import write_split
from fedrec.errors import ConfigurationError
from fedrec.federation.clients import Clients
from fedrec.federation.federation import Federation
from fedrec.federation.observe.recorder import Recorder, extras
from fedrec.federation.observe.spectrum import information_abundance
from fedrec.files.tensors import load_tensors
from fedrec.plan.selection import records_of, runs_of
from fedrec.plan.train_request import TrainRequest
from fedrec.runs.registry import make_learner
from fedrec.runs.train import train
from fedrec.runs.training import Training
from tests.by_hand import ENGINES, kept, near
from tests.conftest import ROOT
from tests.federations import METHODS, clients_of, dies_in_round, planted_blocks, settings_of

BATCHED = ENGINES[1]
ALL = ("vectors=2,5,7", "uploads=2,5,7", "traffic=3,5", "abundance")


@pytest.fixture(scope="module")
def split():
    return planted_blocks(users=14)


@pytest.fixture(scope="module")
def clients(split):
    return clients_of(split)


def watched(name, clients, *changes, keeps=ALL, engine=BATCHED, rounds=3) -> Federation:
    settings = settings_of(name, f"rounds={rounds}", "local_epochs=2", "d=4", *changes)
    made = make_learner(name, clients, settings, 0, engine, Recorder.of(keeps, clients, rounds))
    assert isinstance(made, Federation)
    return made


def trained(federation, rounds=3, first=1):
    for round_ in range(first, rounds + 1):
        federation.train_round(round_)
    return federation


def extra(federation):
    return extras(federation.tensors())


def test_vectors_are_what_users_keep_after_each_round(clients):
    federation = watched("pfedclr", clients, "participation=0.5")
    expected = {"p": [], "B": []}
    for round_ in (1, 2, 3):
        federation.train_round(round_)
        for name, found in expected.items():
            found.append(kept(federation, name)[[2, 5, 7]])
    found = extra(federation)
    for name in expected:
        assert torch.equal(found[f"vectors/{name}"], torch.stack(expected[name]))
    assert "vectors/A" not in found
    assert found["users/vectors"].tolist() == [2, 5, 7]


def test_an_upload_is_the_last_a_user_sent(clients):
    """PFedCLR uploads Q before anything personal is trained, and users keep it as it was."""
    federation = trained(watched("pfedclr", clients, "participation=0.4"))
    found = extra(federation)
    rounds = found["uploaded_in"]
    # Someone did not take part in the last round, and someone did.
    assert (rounds == 3).any()
    assert ((rounds > 0) & (rounds < 3)).any()
    own = kept(federation, "Q")[[2, 5, 7]]
    for place, round_ in enumerate(rounds.tolist()):
        if round_:
            assert near(found["uploads/Q"][place], own[place], within=1e-6)
        else:
            assert found["uploads/Q"][place].isnan().all()


def test_the_mean_of_all_uploads_is_what_the_server_has(clients):
    everyone = ",".join(map(str, range(len(clients))))
    changes = ("weighting=equal", "participation=1", "ldp=0.1", "ldp_clip=2")
    federation = trained(watched("fedmf", clients, *changes, keeps=[f"uploads={everyone}"]))
    assert near(extra(federation)["uploads/Q"].mean(0), federation.state.shared["Q"], within=1e-5)


def test_before_the_first_aggregation_nothing_is_uploaded(clients):
    federation = trained(watched("fedmf", clients, "aggregate_from=3"), rounds=2)
    assert "uploads/Q" not in extra(federation)
    federation.train_round(3)
    assert (extra(federation)["uploaded_in"] > 0).any()


def traffic(federation, name="Q"):
    """Download, upload, earlier upload and rounds."""
    found = extra(federation)
    return [found[f"traffic/{name}/{part}"] for part in ("download", "upload", "earlier", "rounds")]


def test_traffic_is_what_a_user_was_given_and_what_it_sent_twice(clients):
    everyone = range(len(clients))
    keeps = ["traffic", "uploads=" + ",".join(map(str, everyone))]
    federation = watched("fedmf", clients, "participation=0.5", keeps=keeps, rounds=4)
    given, sent, taking_part = [], [], []
    for round_ in (1, 2, 3, 4):
        given.append(federation.state.shared["Q"].clone())
        federation.train_round(round_)
        sent.append(extra(federation)["uploads/Q"].clone())
        taking_part.append(extra(federation)["uploaded_in"] == round_)
    assert extra(federation)["users/traffic"].tolist() == list(everyone)
    download, upload, earlier, rounds = traffic(federation)
    for client in everyone:
        own = [round_ for round_, part in enumerate(taking_part, 1) if part[client]]
        last, before = [0, 0, *own][:-3:-1]
        assert rounds[client].tolist() == [last, before]
        for found, of, round_ in ((download, given, last), (upload, sent, last), (earlier, sent, before)):
            if not round_:
                assert found[client].isnan().all()
            elif of is given:
                assert torch.equal(found[client], of[round_ - 1])
            else:
                assert torch.equal(found[client], of[round_ - 1][client])
    # Someone took part twice, and someone less often.
    assert set((rounds > 0).sum(1).tolist()) >= {1, 2}


def test_the_traffic_of_a_personal_aggregate_is_against_that_aggregate(clients):
    federation = trained(watched("pfedgraph", clients, "aggregated=1", "participation=1"), rounds=2)
    had = federation.state.client_tensors["G"].whole(torch.tensor([3, 5])).clone()
    federation.train_round(3)
    download, upload, _, _ = traffic(federation, "G")
    assert torch.equal(download, had)
    assert near(upload, kept(federation, "Q")[[3, 5]], within=1e-6)


def test_a_copy_of_the_servers_table_is_compared_with_it_wherever_it_is_sent(clients):
    """GPFedRec: a copy of Q goes into R, the mean over neighbours."""
    federation = trained(watched("gpfedrec", clients, "participation=1"), rounds=2)
    had = federation.state.shared["Q"].clone()
    federation.train_round(3)
    download, upload, _, _ = traffic(federation, "R")
    assert torch.equal(download, had.expand(2, -1, -1))
    assert near(upload, kept(federation, "Q")[[3, 5]], within=1e-6)


def test_traffic_has_a_row_per_item(clients):
    """FedNCF also sends its tower, FedCIA the products of items alone."""
    names = {key.split("/")[1] for key in extra(trained(watched("fedncf", clients))) if "traffic/" in key}
    assert names - {"traffic"} == {"Q"}
    federation = trained(watched("fedcia", clients, "participation=1"))
    _, upload, _, _ = traffic(federation, "S")
    assert upload.shape == (2, clients.items, clients.items)
    assert torch.linalg.matrix_rank(upload.double(), rtol=1e-5).tolist() == [4, 4]


def test_the_server_gets_an_upload_with_its_noise(clients):
    plain, noisy = (
        trained(watched("fedmf", clients, "participation=1", change), rounds=1)
        for change in ("ldp=0", "ldp=0.3")
    )
    drawn = noisy.privacy.draw(noisy.state.parameters, "Q", torch.tensor([3, 5]), 1)
    assert torch.equal(traffic(plain)[0], traffic(noisy)[0])
    assert near(traffic(noisy)[1], traffic(plain)[1] + drawn, within=1e-6)


def test_without_names_some_users_from_first_to_last_are_watched(clients, monkeypatch):
    monkeypatch.setattr("fedrec.federation.observe.recorder._SPREAD", 5)
    federation = watched("fedmf", clients, keeps=["traffic"])
    assert federation.recorder.who["traffic"].tolist() == [0, 3, 6, 9, 13]
    # Fewer, where an upload is large; never none.
    for numbers, users in ((2 * clients.items**2, [0, 13]), (1, [0])):
        monkeypatch.setattr("fedrec.federation.observe.recorder._NUMBERS", numbers)
        assert watched("fedcia", clients, keeps=["traffic"]).recorder.who["traffic"].tolist() == users


def test_weights_are_those_of_the_aggregation(clients):
    federation = watched("fedem", clients, "aggregated=0.5", keeps=["weights=1,2,3,4"], rounds=2)
    mixings = []
    mix = federation.method.server.mix
    federation.method.server.mix = lambda *given: (
        mixings.append((given[2].who, mix(*given))) or mixings[-1][1]
    )
    trained(federation, rounds=2)
    found = extra(federation)["weights/G"]
    assert found.shape == (2, 4, 4)
    for here, (who, weights) in zip(found, mixings, strict=True):
        places = {int(client): place for place, client in enumerate(who)}
        for row in range(4):
            for column in range(4):
                pair = (row + 1, column + 1)
                if all(one in places for one in pair):
                    assert here[row, column] == weights[places[pair[0]], places[pair[1]]]
                else:
                    assert here[row, column].isnan()
    assert found.isnan().any()
    assert not found.isnan().all()


def test_abundance_is_of_tables_before_and_after_the_last_training(clients):
    federation = trained(watched("fedmf", clients, "participation=1"), rounds=2)
    before = federation.state.shared["Q"].clone()
    federation.train_round(3)
    found = extra(federation)
    assert found["abundance/Q/before"].shape == (14,)
    assert near(found["abundance/Q/before"], information_abundance(before).expand(14), within=1e-9)
    after = information_abundance(found["uploads/Q"])
    assert near(found["abundance/Q/after"][[2, 5, 7]], after, within=1e-5)


def test_who_takes_no_part_in_the_last_round_has_no_abundance(clients):
    found = extra(trained(watched("fedmf", clients, "participation=0.5")))
    assert int(found["abundance/Q/after"].isnan().sum()) == 7


@pytest.mark.parametrize(
    ("name", "changes", "keeps"),
    [
        ("fedmf", ("participation=0.5",), ALL),
        ("fedmf", ("ldp=0.1",), ALL),
        ("fedmf", ("combine=touched", "ldp=0.1"), ALL),
        ("fedmf", ("aggregate_from=2",), ALL),
        ("pfedclr", (), ALL),
        ("pfedrec", ("item_scale=one", "item_factor=1"), ALL),
        ("fedrap", ("batch_size=8",), ALL),
        ("fedem", ("aggregated=0.5",), (*ALL, "weights=1,2,3")),
        ("pfedgraph", (), (*ALL, "weights=1,2,3")),
        ("perfedrec", (), ALL),
        ("fedcia", ("align_steps=20",), ALL),
        ("fedmf+plgc", ("item_scale=one", "item_factor=1"), ALL),
    ],
)
@pytest.mark.usefixtures("double_precision")
def test_both_engines_keep_the_same(name, changes, keeps):
    clients = clients_of(planted_blocks(users=14))
    loop, batched = (
        extra(trained(watched(name, clients, *changes, keeps=keeps, engine=engine))) for engine in ENGINES
    )
    assert loop.keys() == batched.keys()
    for key, value in loop.items():
        assert torch.equal(value.isnan(), batched[key].isnan()), key
        assert near(value.double().nan_to_num(), batched[key].double().nan_to_num(), within=1e-9), key


@pytest.mark.parametrize("name", ["pfedclr", "fedem"])
@pytest.mark.parametrize("engine", ENGINES, ids=["loop", "batched"])
def test_a_run_that_was_stopped_keeps_the_same(clients, name, engine):
    keeps = (*ALL, "weights=1,2") if name == "fedem" else ALL
    whole, first, second = (
        watched(name, clients, "participation=0.5", keeps=keeps, engine=engine) for _ in range(3)
    )
    trained(whole)
    trained(first, rounds=2)
    second.load({key: value.clone() for key, value in first.tensors().items()})
    second.train_round(3)
    found = second.tensors()
    assert found.keys() == whole.tensors().keys()
    for key, value in whole.tensors().items():
        assert torch.equal(value.nan_to_num(), found[key].nan_to_num()), key


def run(tmp_path, split, name, keep=()):
    write_split(split, tmp_path / "made/clean")
    out = tmp_path / ("kept" if keep else "plain")
    request = TrainRequest(
        data=tmp_path / "made", method=name, protocol="clean", seed=0, out=out,
        changes=("rounds=3", "local_epochs=2"), device="cpu", record=keep,
    )  # fmt: skip
    train(request, METHODS)
    return out


@pytest.mark.parametrize(("name", "keep"), [("pfedclr", ALL), ("fedem", (*ALL, "weights=1,2"))])
def test_keeping_changes_no_other_number(tmp_path, split, name, keep):
    plain, more = run(tmp_path, split, name), run(tmp_path, split, name, keep)
    for file in ("curve.parquet", "ranks.parquet"):
        assert (plain / file).read_bytes() == (more / file).read_bytes()
    first, note = load_tensors(plain / "state.safetensors")
    second, second_note = load_tensors(more / "state.safetensors")
    assert note == second_note
    assert set(second) - set(first) == {f"extra/{key}" for key in extras(second)}
    for key, value in first.items():
        assert value.numpy().tobytes() == second[key].numpy().tobytes(), key


def test_a_checkpoint_that_kept_less_is_not_taken_up(tmp_path, clients, capsys, monkeypatch):
    def made(*keep) -> Training:
        settings = settings_of("fedmf", "rounds=2", "local_epochs=1")
        watch = Recorder.of(keep, clients, 2) if keep else None
        learner = make_learner("fedmf", clients, settings, 0, BATCHED, watch)
        return Training(clients, learner, 2, tmp_path, {"method": "fedmf"}, 0.0, keep)

    plain = made()
    with monkeypatch.context() as patched:
        patched.setattr(Training, "_write", lambda *_: pytest.fail("killed"))
        with pytest.raises(pytest.fail.Exception, match="killed"):
            plain.train()
    assert (tmp_path / "checkpoint.safetensors").is_file()
    made("vectors=1").train()
    assert (
        "the checkpoint belongs to other settings or other code. Training starts from round 1."
        in capsys.readouterr().err
    )
    assert load_tensors(tmp_path / "state.safetensors")[0]["extra/vectors/p"].shape[0] == 2


@pytest.mark.parametrize(("name", "keep"), [("pfedclr", ALL), ("fedem", (*ALL, "weights=1,2"))])
def test_a_killed_run_ends_in_the_same_bytes(tmp_path, clients, monkeypatch, name, keep):
    def made(out) -> Training:
        settings = settings_of(name, "rounds=4", "local_epochs=1", "participation=0.5")
        learner = make_learner(name, clients, settings, 0, BATCHED, Recorder.of(keep, clients, 4))
        return Training(clients, learner, 4, out, {"method": name}, 0.0, keep)

    made(tmp_path / "whole").train()
    dies_in_round(monkeypatch, 3)
    with pytest.raises(pytest.fail.Exception, match="killed"):
        made(tmp_path / "killed").train()
    made(tmp_path / "killed").train()
    for file in ("curve.parquet", "ranks.parquet", "state.safetensors"):
        assert (tmp_path / "whole" / file).read_bytes() == (tmp_path / "killed" / file).read_bytes(), file


def test_users_are_numbers_in_the_dataset(clients):
    some = clients.subset(torch.tensor([3, 5, 8]))
    assert isinstance(some, Clients)
    assert Recorder.of(["vectors=8,3"], some, 1).who["vectors"].tolist() == [0, 2]
    with pytest.raises(
        ConfigurationError, match=r"vectors: there is no user 4 .* 3 users have numbers from 3 to 8"
    ):
        Recorder.of(["vectors=3,4"], some, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("vector=3", "unknown kind 'vector'. Did you mean 'vectors'"),
        ("vectors", "name the users, for example vectors=94,233"),
        ("uploads=3;4", "numbers joined by commas"),
        ("abundance=3", "abundance covers every user. Write abundance without numbers."),
    ],
)
def test_a_mistake_is_named(text, said):
    with pytest.raises(ConfigurationError, match=said):
        merged_records([text])


def test_traffic_is_of_named_users_or_of_some_of_all():
    with pytest.raises(ConfigurationError, match=r"traffic is given with and without users\. Keep one\."):
        merged_records(["traffic=3", "traffic"])


@pytest.mark.parametrize(("name", "change"), [("local-only", "d=4"), ("fedrap", "tables=personal")])
def test_what_uploads_no_item_table_has_no_traffic(clients, name, change):
    with pytest.raises(ConfigurationError, match="no item table of this method leaves a client"):
        watched(name, clients, change, keeps=["traffic"])


def test_what_a_method_has_not_got_cannot_be_kept(clients):
    with pytest.raises(ConfigurationError, match="no aggregate for each client"):
        watched("fedmf", clients, keeps=["weights=1"])
    with pytest.raises(
        ConfigurationError,
        match="mf: --record has nothing to record, because this method has no clients that train",
    ):
        make_learner("mf", clients, settings_of("mf"), 0, BATCHED, Recorder.of(["abundance"], clients, 1))


def test_keeps_are_spelt_in_one_way():
    assert spelled_records(merged_records(["uploads=7,2", "abundance", "uploads=2", "vectors=1", "traffic"])) == [
        "vectors=1", "uploads=2,7", "traffic", "abundance",
    ]  # fmt: skip
    assert spelled_records(merged_records(["traffic=7,2", "traffic=3"])) == ["traffic=2,3,7"]


def test_a_run_keeps_what_all_figures_ask_for():
    papers = load_papers(ROOT / "config/papers")
    figure = papers["pfedclr"].artefacts["fig10"]
    (place, dataset, kind), (run, _) = next(
        iter(runs_of(figure, METHODS, (0, 1), set(figure.datasets) - {"ml-100k"}).items())
    )
    assert (place, dataset, kind) == (0, "ml-100k", "published-pfedclr")

    def paper(*keeps):
        named = {f"fig{n}": replace(figure, record=keep) for n, keep in enumerate(keeps)}
        return {"pfedclr": replace(papers["pfedclr"], artefacts=named)}

    found = records_of(paper(("uploads=4,2",), (), ("abundance", "uploads=3")), METHODS, (0, 1))
    assert found[run] == ["uploads=2,3,4", "abundance"]
    assert {one.seed for one in found} == {0, 1}
    assert {run.protocol for run in found} == {"published-pfedclr", "clean"}
    assert records_of(paper((), ()), METHODS, (0, 1)) == {}
