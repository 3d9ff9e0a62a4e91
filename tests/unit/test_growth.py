"""The benchmark of growth: it must run where a large machine is paid for by the minute."""

import csv
from dataclasses import asdict

import pytest
import torch

from benchmarks.growth import add_line, measure
from fedrec.config.population import Population
from tests.conftest import ROOT


@pytest.mark.parametrize("method", ["fedmf", "pfedclr"])
def test_a_size_is_measured_and_added_to_the_table(tmp_path, method):
    table = tmp_path / "growth.csv"
    for users in (40, 60):
        line = measure(
            Population(seed=1, users=users, items=500, interactions=30 * users),
            method=method,
            changes=["local_epochs=1"],
            device="cpu",
            ranked_users=7,
            config=ROOT / "config",
        )
        add_line(table, asdict(line))
    with table.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert [(row["users"], row["interactions"], row["ranked_users"]) for row in rows] == [
        ("40", "1200", "7"),
        ("60", "1800", "7"),
    ]
    assert all(float(row["draws"]) > 0 and float(row["training"]) > 0 for row in rows)
    assert int(rows[0]["peak_host_bytes"]) > 0
    assert rows[0]["peak_device_bytes"] == "0" or torch.cuda.is_available()
