"""What is known of items beforehand: read from a file, seen by methods as a table that nobody trains or sends."""

from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
import pytest
import torch

from fedrec.config.method_entries import Setting, SourcedValue
from fedrec.config.methods import Methods, canonical, resolve
from fedrec.data.item_features import item_features
from fedrec.errors import ConfigurationError, DataError, FederationError
from fedrec.federation.federation import Federation
from fedrec.federation.model import (
    Batch,
    Client,
    GivenTable,
    Initial,
    Method,
    Parameter,
    Weights,
    dot,
    given_table,
    item_table,
    matrix,
    mean_entropy,
    vector,
)
from fedrec.files.parquet import write_table
from fedrec.runs.setting_files import (
    FILE_CHECKSUMS,
    checksums,
    setting_paths,
    trained_settings,
    with_file_tables,
)
from tests.engines import ENGINES, LOOP
from tests.federations import METHODS, apart, clients_of, planted_blocks, precision, settings_of, values_of

WIDTH = 3


class DualEncoder(Method):
    """A user vector meets what a layer makes of an item's features, besides its id (as in IFedRec)."""

    def parameters(self) -> dict[str, Parameter]:
        d, start = self.settings["d"], Initial("normal", 0.3)
        return {
            "F": given_table(self.items, self.settings["features"]),
            "E": matrix(WIDTH, d, "shared", start),
            "Q": item_table(self.items, d, "shared", Initial("normal", 0.1)),
            "p": vector(d, "private", start),
        }

    def score(self, w: Weights, items: torch.Tensor) -> torch.Tensor:
        return dot(w.F[items] @ w.E + w.Q[items], w.p)

    def loss(self, w: Weights, batch: Batch) -> torch.Tensor:
        return mean_entropy(self.score(w, batch.items), batch)

    def local_round(self, client: Client) -> None:
        self.fit(client, self.step(client, dict.fromkeys(("E", "Q", "p"), self.settings["rate"])))
        client.upload("E", "Q")


def given(items, dtype=torch.float64):
    values = torch.from_numpy(np.random.default_rng(0).normal(size=(items, WIDTH))).to(dtype)
    return GivenTable("features.csv", "0" * 64, ("a", "b", "c"), values)


def federation_of(kind, clients, engine, table):
    settings = settings_of("fedmf", "d=6", "participation=1", "local_epochs=2", "batch_size=7", "rate=0.05")
    held = LOOP if engine == "loop" else ENGINES[engine]
    method = kind({**settings, "features": table}, clients.items)
    return Federation(method, clients, held.make(), settings, 0, held.dense_bytes)


@pytest.mark.parametrize("engine", ["fused", "batched", "blocks"])
def test_a_dual_encoder_trains_to_the_numbers_of_the_plain_loop(engine):
    with precision(torch.float64):
        clients = clients_of(planted_blocks(users=5, per_user=14))
        found = {}
        for name in ("loop", engine):
            federation = federation_of(DualEncoder, clients, name, given(clients.items))
            for round_ in (1, 2):
                federation.train_round(round_)
            items = torch.arange(clients.items).expand(len(clients), -1)
            scores = federation.scores(torch.arange(len(clients)), items)
            found[name] = values_of(federation) | {"scores": scores}
        assert max(apart(found["loop"], found[engine]).values()) < 1e-9
        assert not any(key.endswith("/F") for key in federation.tensors())


def test_what_is_given_decides_scores():
    clients = clients_of(planted_blocks(users=5, per_user=14))
    one, other = (
        federation_of(
            DualEncoder, clients, "batched", replace(given(clients.items, torch.float32), values=values)
        )
        for values in (torch.zeros(clients.items, WIDTH), torch.ones(clients.items, WIDTH))
    )
    items = torch.arange(clients.items).expand(len(clients), -1)
    assert not torch.equal(*(each.scores(torch.arange(len(clients)), items) for each in (one, other)))


class Training(DualEncoder):
    def local_round(self, client: Client) -> None:
        self.fit(client, self.step(client, {"F": 0.1}))


class Rewriting(DualEncoder):
    def local_round(self, client: Client) -> None:
        client.rewrite("F", lambda w, items: w.F[items])
        super().local_round(client)


class Sending(DualEncoder):
    def local_round(self, client: Client) -> None:
        super().local_round(client)
        client.upload("F", into="Q")


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (Training, "is given and stays as it is"),
        (Rewriting, "cannot be rewritten"),
        (Sending, "cannot be uploaded"),
    ],
)
def test_what_is_given_is_neither_trained_nor_rewritten_nor_sent(kind, said):
    clients = clients_of(planted_blocks(users=5, per_user=14))
    with pytest.raises(FederationError, match=said):
        federation_of(kind, clients, "batched", given(clients.items, torch.float32)).train_round(1)


@pytest.fixture
def data(tmp_path):
    """A dataset whose items 0, 1 and 2 are called 30, 7 and 007 in its raw file."""
    folder = tmp_path / "made"
    folder.mkdir()
    write_table(
        folder / "items.parquet", pa.table({"item": [0, 1, 2], "original_id": ["30", "7", "007"]}), {}
    )
    return folder


def written(folder, name="features.csv", **columns):
    table = pa.table(columns)
    (pv.write_csv if name.endswith("csv") else pq.write_table)(table, folder / name)
    return folder / name


@pytest.mark.parametrize("name", ["features.csv", "features.parquet"])
def test_rows_are_brought_into_the_order_of_the_dataset(data, name):
    path = written(
        data,
        name,
        year=[1.5, 2.5, 3.5, 9.0],
        item=["007", "30", "7", "of another dataset"],
        new=[True, False, True, True],
    )
    found = item_features(path, data)
    assert found.columns == ("year", "new")
    assert found.values.tolist() == [[2.5, 0.0], [3.5, 1.0], [1.5, 1.0]]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"item": ["30", "7"], "a": [1, 2]}, r"1 of 3 items of made have no row, for example '007'"),
        ({"item": ["30", "7", "007", "7"], "a": [1, 2, 3, 4]}, "item '7' has two rows"),
        ({"item": ["30", "7", "007"], "a": ["x", "y", "z"]}, "column 'a' has the type string. Write numbers"),
        (
            {"item": ["30", "7", "007"], "a": [1.0, None, 2.0]},
            "column 'a' has no finite 32-bit number for item '7'",
        ),
        ({"items": ["30", "7", "007"], "a": [1, 2, 3]}, r"Did you mean 'items'|needs a column 'item'"),
        ({"item": ["30", "7", "007"]}, "needs a column 'item'"),
        (
            {"item": ["30", "7", "007"], "a": [1.0, 1e39, 2.0]},
            "column 'a' has no finite 32-bit number for item '7'",
        ),
    ],
)
def test_a_file_that_does_not_say_everything_is_refused(data, columns, said):
    with pytest.raises(DataError, match=said):
        item_features(written(data, **columns), data)


@pytest.mark.parametrize("kind", [pa.list_(pa.string()), pa.binary()])
def test_ids_that_are_no_text_are_refused(data, kind):
    ids = pa.array([["30"], ["7"]] if pa.types.is_list(kind) else [b"30", b"\xff"], kind)
    with pytest.raises(
        DataError, match=r"column 'item' has the type .*\. Write original ids, as text or integers\."
    ):
        item_features(written(data, "features.parquet", item=ids, a=[1, 2]), data)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"item,a,a\n30,1,2\n", "two columns have the name 'a'. Rename or remove one"),
        (b"item,a,item\n30,1,30\n", "two columns have the name 'item'. Rename or remove one"),
        (b"item,\xe4\n30,1\n", r"cannot be read as a table .*utf-8"),
    ],
)
def test_a_file_whose_columns_cannot_be_told_apart_is_refused(data, text, said):
    (data / "features.csv").write_bytes(text)
    with pytest.raises(DataError, match=said):
        item_features(data / "features.csv", data)


def test_of_an_integer_with_more_digits_than_a_float_the_nearest_float_is_taken(data):
    path = written(data, item=["30", "7", "007"], a=[2**53 + 1, 2**62 + 1, -1])
    assert item_features(path, data).values.tolist() == [[2.0**53], [2.0**62], [-1.0]]


def test_a_file_that_is_no_table_is_refused(data):
    (data / "broken.parquet").write_text("no table")
    with pytest.raises(DataError, match=r"broken\.parquet: cannot be read"):
        item_features(data / "broken.parquet", data)
    with pytest.raises(DataError, match="no such file"):
        item_features(data / "nothing.csv", data)
    with pytest.raises(DataError, match="is a folder"):
        item_features(data, data)


def with_settings(**settings):
    """FedMF with settings of further types."""
    more = {
        name: Setting("made", kind, SourcedValue(value, "ours"), "fedmf", nullable=value is None)
        for name, (kind, value) in settings.items()
    }
    entry = METHODS["fedmf"]
    return Methods({"fedmf": replace(entry, settings={**entry.settings, **more})})


def test_the_checksum_of_a_file_is_what_a_run_is_known_by(data):
    methods = with_settings(features=("path", None))
    path = written(data, item=["30", "7", "007"], a=[1, 2, 3])
    settings = resolve(methods, "fedmf", None, "made", [f"features={path}"])[0]
    assert settings["features"] == str(path)
    trained = with_file_tables(settings, setting_paths(methods, "fedmf", settings), data)
    assert trained["features"].values.tolist() == [[1], [2], [3]]
    summary = {"settings": settings, FILE_CHECKSUMS: checksums(trained)}
    assert trained_settings(summary, data)["features"].values.tolist() == [[1], [2], [3]]
    written(data, item=["30", "7", "007"], a=[1, 2, 4])
    with pytest.raises(DataError, match="has changed since the run was trained with it"):
        trained_settings(summary, data)


def test_a_run_that_names_no_file_is_known_by_none(data):
    methods = with_settings(features=("path", None))
    settings = resolve(methods, "fedmf", None, "made")[0]
    assert setting_paths(methods, "fedmf", settings) == {}
    assert checksums(with_file_tables(settings, {}, data)) == {}
    assert trained_settings({"settings": settings}, data) == settings


def test_settings_of_text_and_of_truth_are_read_spelt_and_refused():
    methods = with_settings(label=("text", "plain"), deep=("bool", False))
    settings = resolve(methods, "fedmf", None, "made", ["label=a-b.c", "deep=true"])[0]
    assert (settings["label"], settings["deep"]) == ("a-b.c", True)
    assert canonical(methods, "fedmf[label=x][deep=true]") == "fedmf[deep=true][label=x]"
    for change, said in (
        ("deep=yes", "fedmf: deep=yes is not of type bool"),
        ("label=a b", "is not allowed"),
    ):
        with pytest.raises(ConfigurationError, match=said):
            resolve(methods, "fedmf", None, "made", [change])


def test_a_path_is_no_part_of_a_name():
    with pytest.raises(
        ConfigurationError, match=r"is a path, which cannot be part of a name\. Give it as --set"
    ):
        canonical(with_settings(features=("path", None)), "fedmf[features=some.csv]")
