import pytest

from fedrec.config.configuration import read_configuration
from fedrec.config.document import document_of, schema_named
from fedrec.config.schema import check, load
from fedrec.config.seeds import LARGEST_SEED
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT
from tests.projects import content_of


@pytest.fixture
def layered(tmp_path):
    """The project's configuration, a file over it, and changes of the command line over both."""

    def read(text, **changes):
        (tmp_path / "mine.yaml").write_text(text)
        return read_configuration([ROOT / "config/config.yaml", tmp_path / "mine.yaml"], changes)

    return read


def test_later_ones_win_key_by_key(layered):
    content = layered("audit: {switches: [order]}\nseeds: [1]\n", seeds=["2", "3"], rounds="null").content
    assert content["audit"] == content_of("config.yaml")["audit"] | {"switches": ["order"]}
    assert (content["seeds"], content["rounds"]) == ([2, 3], None)


def test_each_key_knows_where_it_stands(layered, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    document = layered("\naudit: {switches: [order]}\n", seeds=[2])
    own = ROOT / "config/config.yaml"
    line = 1 + [text.split(":")[0] for text in own.read_text().splitlines()].index("paper")
    assert document.location(("paper",)) == f"{own}, line {line}, paper"
    assert document.location(("audit", "switches", 0)) == "mine.yaml, line 2, audit.switches[0]"
    assert document.location(("audit", "methods")).startswith(str(own))
    assert document.location(("seeds", 0)) == "from --config, seeds[0]"
    assert document.location(("missing",)) == f"{own}, missing"


def test_what_an_anchor_shares_is_reported_once_and_where_it_is_written():
    document = document_of(
        "alpha: &shared\n  title: 3\n  settings: {}\nbeta: *shared\ngamma:\n  <<: *shared\n", "made.yaml"
    )
    assert document.line(("gamma", "title")) == 2
    assert document.from_anchor(("beta", "title"))
    assert not document.from_anchor(("alpha", "title"))
    with pytest.raises(ConfigurationError) as error:
        check(document, "methods")
    told = [text for text in str(error.value).splitlines() if "title" in text]
    assert told == [
        "made.yaml, line 2, alpha.title: must be text, got 3 (integer). Expected: its name in tables."
    ]


def test_limits_of_the_configuration_are_those_of_runs():
    properties = schema_named("config")["properties"]
    assert properties["seeds"]["items"]["maximum"] == LARGEST_SEED
    ranges = {
        tuple(entry["settings"]["rounds"]["range"])
        for entry in content_of("methods.yaml").values()
        if "rounds" in entry["settings"]
    }
    assert ranges == {(properties["rounds"]["minimum"], properties["rounds"]["maximum"])}


@pytest.mark.parametrize("name", ["config", "methods", "datasets", "protocols", "claims"])
def test_noise_is_refused_in_every_file(tmp_path, name):
    path = tmp_path / f"{name}.yaml"
    for content in (b"\xff\xfe\x00", b"a: \x00\n", b"[" * 100_000, b"a: &a [*a]\n", b"\x80" * 10):
        path.write_bytes(content)
        with pytest.raises(ConfigurationError, match=f"{name}.yaml"):
            load(path, name)
