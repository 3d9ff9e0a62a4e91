import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec.config.document import Document, document_of
from fedrec.config.method_file import read_entries
from fedrec.config.methods import (
    Methods,
    canonical,
    canonical_all,
    load_methods,
    resolve,
    setting_text,
    title,
)
from fedrec.config.names import parse
from fedrec.config.protocol import OWN
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT


def setting(kind, value, **more):
    limits = {"choices": ["static", "learnt"]} if kind == "choice" else {"range": [0, 1e30]}
    return {"meaning": "made", "type": kind, "value": value, "source": "paper"} | limits | more


CONTENT = {
    "fedmf": {
        "title": "FedMF",
        "paper": "pfedclr",
        "settings": {
            "d": setting("integer", 16, papers={"plgc": {"value": 32, "source": "code"}}),
            "rate": setting("number", 0.1),
            "stop": setting("number", None, nullable=True),
            "rounds": setting("integer", 9),
        },
    },
    "fedncf": {
        "title": "FedNCF",
        "paper": "pfedclr",
        "settings": {"layers": setting("integers", [16, 8]), "rounds": setting("integer", 9)},
    },
    "mf": {
        "title": "MF",
        "paper": "pfedclr",
        "settings": {"d": setting("integer", 16), "rounds": setting("integer", 9)},
    },
    "+plgc": {
        "title": "PLGC",
        "paper": "plgc",
        "settings": {
            "beta": setting("number", 0.3, papers={"pfedclr": {"value": 0.5, "source": "ours"}}),
            "merge": setting("choice", "static"),
            "rate": setting("number", 0.2, papers={"plgc": {"value": 0.4, "source": "ours"}}),
        },
        "backbones": {"fedmf": "as printed", "fedncf": "on its item table"},
        "refused": {"mf": "it has no clients"},
    },
    "+em": {"title": "EM", "paper": "fedem", "settings": {}, "backbones": {"fedmf": "as printed"}},
}


def methods_of(content):
    return Methods(read_entries(Document("made", content)))


METHODS = methods_of(CONTENT)


def message(call, *arguments):
    with pytest.raises(ConfigurationError) as error:
        call(METHODS, *arguments)
    return str(error.value)


def test_a_plug_ins_settings_join_the_backbones_or_take_their_place():
    values, sources, paper = resolve(METHODS, "fedmf+plgc", None, "made")
    assert values == {"d": 32, "rate": 0.4, "stop": None, "rounds": 9, "beta": 0.3, "merge": "static"}
    assert (sources["d"], sources["rate"], paper) == ("code", "ours", "plgc")
    values, _, paper = resolve(METHODS, "fedmf+plgc", "pfedclr", "made")
    assert (values["d"], values["rate"], values["beta"], paper) == (16, 0.2, 0.5, "pfedclr")


def test_brackets_win_over_the_file_and_changes_over_both():
    values, sources, _ = resolve(METHODS, "fedmf+plgc[d=8,beta=0.7]", None, "made", ["beta=0.9"])
    assert (values["d"], values["beta"], values["rate"]) == (8, 0.9, 0.4)
    assert (sources["d"], sources["beta"], sources["rate"]) == ("user", "user", "ours")


def test_integers_are_joined_by_x_wherever_they_are_written():
    for name, changes in (("fedncf[layers=32x16x8]", []), ("fedncf", ["layers=32x16x8"])):
        assert resolve(METHODS, name, None, "made", changes)[0]["layers"] == [32, 16, 8]
    said = message(resolve, "fedncf", None, "made", ["layers=32,16"])
    assert "layers=32,16 is not of type integers: made; integers joined by x, each from 0 to 1e+30." in said


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("fedfm", "unknown method 'fedfm'. Did you mean 'fedmf'? Known methods:"),
        ("plgc", "unknown method 'plgc'. It is a plug-in; write BACKBONE+plgc"),
        ("+plgc", "the backbone is missing"),
        ("fedmf+plg", "unknown plug-in 'plg'. Did you mean 'plgc'? Known plug-ins:"),
        ("mf+plgc", "plgc does not support mf: it has no clients. It supports:"),
        (
            "fedncf+em",
            "em does not support fedncf: its entry does not declare how it applies there. It supports:",
        ),
        ("fedmf[beta=0.3]", "fedmf has no setting 'beta'. It has: d, rate, stop, rounds."),
        (
            "fedmf+plgc[bta=1]",
            "fedmf+plgc has no setting 'bta'. Did you mean 'beta'? It has: d, rate, stop, rounds, beta",
        ),
        ("fedmf[LR=1]", "fedmf has no setting 'LR'. Did you mean 'rate'?"),
        ("fedmf[epochs=1]", "fedmf has no setting 'epochs'. It has: d, rate, stop, rounds."),
        ("fedmf[d=1.5]", "fedmf: d=1.5 is not of type integer:"),
        ("fedmf[rate=nan]", "fedmf: rate=nan is not allowed: made; number from 0 to 1e+30"),
        ("fedmf[d=null]", "fedmf: d=null is not of type integer:"),
        ("fedmf+plgc[merge=mean]", "merge=mean is not allowed: made; one of static, learnt"),
    ],
)
def test_impossible_compositions_are_refused_with_the_reason(name, said):
    assert said in message(resolve, name, None, "made")
    assert said in message(canonical, name)


@pytest.mark.parametrize("share", ["participation", "aggregated"])
def test_a_share_of_the_clients_is_above_0(share):
    """At least one client trains: a share of 0 would be another experiment than it says."""
    methods = load_methods(ROOT / "config/methods.yaml")
    having = [name for name, entry in methods.items() if share in entry.settings and not name.startswith("+")]
    assert len(having) > 9
    for name in having:
        with pytest.raises(
            ConfigurationError, match=rf"{share}=0(\.0)? is not allowed: share of .*, above 0"
        ):
            canonical(methods, f"{name}[{share}=0]")


def test_without_plug_ins_none_is_known():
    with pytest.raises(ConfigurationError, match=r"unknown plug-in 'plg'\. Known plug-ins: none\."):
        canonical(Methods({"mf": METHODS["mf"]}), "mf+plg")


@pytest.mark.parametrize(("name", "key"), [("fedmf", "fedmf"), ("mf+plgc", r"\+plgc")])
def test_a_file_without_an_entry_is_reported_as_such(name, key):
    with pytest.raises(ConfigurationError, match=rf"'{key}' has a file, fedrec/.*, but no entry in"):
        canonical(Methods({"mf": METHODS["mf"]}), name)


@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("fedmf", "fedmf"),
        (" fedmf + plgc ", "fedmf+plgc"),
        ("fedmf[d=08]", "fedmf[d=8]"),
        ("fedmf[d=16]", "fedmf[d=16]"),
        ("fedmf[rate=0.10, d=8]", "fedmf[d=8][rate=0.1]"),
        ("fedmf[rate=1.0]", "fedmf[rate=1]"),
        ("fedmf[rate=1]", "fedmf[rate=1]"),
        ("fedmf[rate=-0.0]", "fedmf[rate=0]"),
        ("fedmf[rate=0.00001]", "fedmf[rate=1e-5]"),
        ("fedmf[rate=100000000000000000000]", "fedmf[rate=1e20]"),
        ("fedmf[stop=none]", "fedmf[stop=null]"),
        ("fedncf[layers=032x8]", "fedncf[layers=32x8]"),
        ("fedmf+plgc[merge=learnt,beta=.3]", "fedmf+plgc[beta=0.3][merge=learnt]"),
    ],
)
def test_there_is_one_spelling(name, spelling):
    assert canonical(METHODS, name) == spelling


NUMBERS = st.floats(0, 1e30)
CHANGES = st.fixed_dictionaries(
    {},
    optional={
        "d": st.integers(0, 10**30).map(str),
        "rate": NUMBERS.map(str) | NUMBERS.map("{:.3f}".format) | NUMBERS.map("{:E}".format),
        "stop": NUMBERS.map(repr) | st.sampled_from(["null", "none"]),
        "merge": st.sampled_from(["static", "learnt"]),
    },
).flatmap(lambda found: st.permutations(list(found.items())))


@given(CHANGES)
def test_the_one_spelling_means_the_same_and_is_its_own(changes):
    name = "fedmf+plgc" + (
        "[" + ",".join(f"{key}={value}" for key, value in changes) + "]" if changes else ""
    )
    spelling = canonical(METHODS, name)
    assert canonical(METHODS, spelling) == spelling
    assert resolve(METHODS, spelling, None, "made") == resolve(METHODS, name, None, "made")
    assert [key for key, _ in parse(spelling).changes] == sorted(key for key, _ in changes)


@given(st.lists(st.integers(0, 10**6), min_size=1))
def test_integers_are_read_back(sizes):
    name = f"fedncf[layers={'x'.join(map(str, sizes))}]"
    assert canonical(METHODS, name) == name
    assert resolve(METHODS, name, None, "made")[0]["layers"] == sizes


def test_two_names_of_one_run_are_refused():
    assert canonical_all(METHODS, ["mf", "fedmf[d=08]", "fedmf"]) == ["mf", "fedmf[d=8]", "fedmf"]
    said = message(canonical_all, ["fedmf[d=08]", "mf", "fedmf[d=8]"])
    assert said == "'fedmf[d=08]' and 'fedmf[d=8]' are both fedmf[d=8]. Keep one."


def test_a_title_is_made_of_the_parts_titles():
    assert title(METHODS, "fedmf") == "FedMF"
    assert title(METHODS, "fedmf+plgc[beta=0.30]") == "FedMF+PLGC[beta=0.3]"


def test_a_method_without_a_paper_follows_none_and_a_plug_in_without_one_its_backbones():
    own = {"title": "Mine", "settings": {"d": setting("integer", 8), "rounds": setting("integer", 9)}}
    plugin = {"title": "P", "settings": {}, "backbones": {"fedmf": "so", "mine": "so"}}
    methods = methods_of(CONTENT | {"mine": own, "+p": plugin})
    papers = {name: resolve(methods, name, None, "made")[2] for name in ("mine", "mine+p", "fedmf+p")}
    assert papers == {"mine": OWN, "mine+p": OWN, "fedmf+p": "pfedclr"}
    assert resolve(methods, "mine", "plgc", "made")[2] == "plgc"


ANCHORED = """
fedmf:
  title: FedMF
  paper: pfedclr
  settings: &fedmf
    d: {meaning: made, type: integer, range: [1, 64], value: 16, source: paper, papers: {plgc: {value: 32, source: code}}}
    stop: {meaning: made, type: number, range: [0, 1], value: 0.5, source: ours}
    rate: &rate {meaning: made, type: number, range: [0, 1], value: 0.1, source: checked}
    rounds: &rounds {meaning: made, type: integer, range: [1, 9], value: 2, source: ours}
other: {title: Other, paper: pfedclr, settings: {<<: *fedmf}}
mine:
  title: Mine
  settings: {<<: *fedmf, own: {meaning: made, type: number, range: [0, 1], value: 0.5, source: code}}
theirs: {title: Theirs, paper: sixth, settings: {rate: *rate, rounds: *rounds}}
"""


@pytest.mark.parametrize(
    ("name", "paper", "sources"),
    [
        ("fedmf", None, {"d": "paper", "stop": "ours", "rate": "checked"}),
        # It may follow any paper: what its own entry says stays.
        ("fedmf", "sixth", {"d": "paper", "stop": "ours", "rate": "checked"}),
        # Papers state common settings for all methods they compare.
        ("other", None, {"d": "paper", "stop": "ours", "rate": "checked"}),
        ("mine", "plgc", {"d": "code", "stop": "ours", "rate": "checked", "own": "code"}),
        # No paper states what a method takes over without one.
        ("mine", None, {"d": "taken from fedmf", "stop": "ours", "rate": "taken from fedmf", "own": "code"}),
        ("theirs", None, {"rate": "taken from fedmf"}),
    ],
)
def test_what_is_taken_over_is_stated_only_by_the_papers_that_its_entry_names(name, paper, sources):
    methods = Methods(read_entries(document_of(ANCHORED, "made")))
    assert resolve(methods, name, paper, "made")[1] == sources | {"rounds": "ours"}


def test_no_method_takes_over_what_its_own_paper_states():
    methods = load_methods(ROOT / "config/methods.yaml")
    taken = {
        f"{name}.{key}"
        for name, entry in methods.items()
        if entry.paper in ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap") and name[0] != "+"
        for key, source in resolve(methods, name, None, "made")[1].items()
        if source.startswith("taken from")
    }
    assert taken == set()


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "1"), (0.1, "0.1"), (1e-05, "1e-5"), (None, "null"), ([32, 16], "32x16"), ([], "none"), (3, "3")],
)
def test_a_value_has_one_spelling_wherever_it_is_written(value, text):
    assert setting_text(value) == text
