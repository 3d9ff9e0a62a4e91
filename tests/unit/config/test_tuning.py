"""Searches as configuration: what may be searched and what not, and values that are marked as found by one."""

import re

import pytest
import yaml

from fedrec.config.methods import load_methods, resolve
from fedrec.config.tuning import load_tuning
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT
from tests.projects import Made

METHODS = load_methods(ROOT / "config/methods.yaml")
DEFAULT = {"dataset": "ml-100k", "trials": 4, "design": 0, "seed": 1000}
RATE = {"log": [0.001, 1], "was": 0.01}


def loaded(folder, searches, **changes):
    path = folder / "tuning.yaml"
    path.write_text(yaml.safe_dump(DEFAULT | {"searches": searches} | changes, sort_keys=False))
    return load_tuning(path, METHODS)


def search(settings, **changes):
    return {"because": "nobody says", "settings": settings} | changes


def test_a_search_is_read_as_names_of_runs_spell_it(tmp_path):
    ranges = {
        "rate": RATE,
        "early_stop": {"choice": [None, 0.0001], "was": None},
        "layers": {"choice": [[32, 16, 8], [64]], "was": [32, 16, 8]},
    }
    tuning = loaded(tmp_path, {"fedncf+plgc@plgc": search(ranges, held={"d": 8, "beta": 0.30})})
    (one,) = tuning.searches.values()
    assert (one.target, one.paper, one.dataset) == ("tune_fedncf_plgc_plgc", "plgc", "ml-100k")
    assert one.method == "fedncf+plgc[beta=0.3][d=8]"
    assert [(part.setting, part.bounds, part.choices, part.was) for part in one.ranges] == [
        ("rate", (0.001, 1.0), (), "0.01"),
        ("early_stop", None, ("null", "0.0001"), "null"),
        ("layers", None, ("32x16x8", "64"), "32x16x8"),
    ]


@pytest.mark.parametrize(
    ("key", "entry", "said"),
    [
        ("fedmff@fedem", search({"rate": RATE}), "unknown method 'fedmff'. Did you mean 'fedmf'?"),
        ("fedmf+plgq@plgc", search({"rate": RATE}), "unknown plug-in 'plgq'. Did you mean 'plgc'?"),
        ("pfedclr+em@fedem", search({"merge": RATE}), "em does not go with pfedclr"),
        ("ncf@fedem", search({"rat": RATE}), "settings.rat: ncf has no setting 'rat'. Did you mean 'rate'?"),
        ("ncf@fedem", search({"rate": RATE}, held={"dd": 8}), "held.dd: ncf has no setting 'dd'"),
        ("ncf@fedem", search({"rate": RATE}, held={"d": 0}), "held.d: 0 (integer) is not allowed: size of a vector"),
        ("ncf@fedem", search({"rate": RATE}, held={"rate": 0.1}), "held.rate: is searched below, too"),
        ("fedmf@fedem", search({"rate": RATE}), "settings.rate: fedem states it: rate = 0.1. What a paper states"),
        ("centrap@fedrap", search({"rounds": {"linear": [1, 9], "was": 5}}), "decides how long a trial is"),
        ("ncf@fedem", search({"rate": {"was": 0.1}}), "settings.rate: give exactly one of log, linear, choice"),
        ("ncf@fedem", search({"rate": RATE | {"choice": [0.1, 1]}}), "give exactly one of log, linear, choice"),
        ("ncf@fedem", search({"rate": {"log": [0, 1], "was": 0.1}}), "starts above 0, not at 0"),
        ("ncf@fedem", search({"rate": {"log": [-1, 1], "was": 0.1}}), "starts above 0, not at -1"),
        ("ncf@fedem", search({"rate": {"linear": [1, 1], "was": 0.1}}), "the least value, 1, must lie below"),
        ("ncf@fedem", search({"rate": {"linear": [1, 2000], "was": 0.1}}), "2000 (integer) is not allowed: learning"),
        ("ncf@fedem", search({"rate": {"linear": [0, 1], "was": -1}}), "rate.was: -1 (integer) is not allowed"),
        ("ncf@fedem", search({"rate": {"linear": [0, 1, 2], "was": 1}}), "may have 2 at most"),
        ("ncf@fedem", search({"rate": {"linear": [0, 1]}}), "key 'was' is missing"),
        ("ncf@fedem", search({"rate": {"choice": [1], "was": 1}}), "choice: has 1 entries, needs at least 2"),
        ("ncf@fedem", search({"rate": {"choice": [1, "a"], "was": 1}}), "choice[1]: 'a' (text) is not allowed"),
        ("ncf@fedem", search({"rate": {"choice": [1, 1], "was": 1}}), "is in the list twice"),
        ("ncf@fedem", search({}), "settings: has 0 entries"),
        ("fedcia@fedem", search({"fitting": {"log": [1, 2], "was": "product"}}), "goes with numbers; this is one of"),
        ("ncf@fedem", {"settings": {"rate": RATE}}, "key 'because' is missing. It is: what the paper leaves open"),
        ("ncf", search({"rate": RATE}), "does not match"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_search_is_told_where_it_stands(tmp_path, key, entry, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        loaded(tmp_path, {key: entry})
    assert "tuning.yaml, line " in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"trials": 0}, "trials: 0 is not allowed: at least 1"),
        ({"seed": -1}, "seed: -1 is not allowed"),
        ({"trails": 3}, "unknown key 'trails'. Did you mean 'trials'?"),
        ({"halving": {"rounds": [], "keep": 0.5}}, "halving.rounds: has 0 entries"),
        (
            {"halving": {"rounds": [100], "keep": 0.5}},
            "trials of ncf@fedem have 100 rounds; compare them before",
        ),
        ({"halving": {"rounds": [20, 10], "keep": 0.5}}, "write them from the first to the last"),
        ({"halving": {"rounds": [10], "keep": 1}}, "halving.keep: 1"),
    ],
)
def test_a_mistake_in_what_searches_have_in_common_is_told(tmp_path, changes, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        loaded(tmp_path, {"ncf@fedem": search({"rate": RATE})}, **changes)


# What a search has to do with the rest of the configuration


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


def test_a_seed_of_trials_is_not_reported(made):
    with pytest.raises(
        ConfigurationError, match=r"seeds\[1\]: 1000 is the seed of trials .config/tuning.yaml"
    ):
        made.project(seeds=[0, 1000])


def test_a_search_follows_a_paper_that_there_is(made):
    other = "fedcia@fedemm: {because: why, settings: {rate: {log: [0.1, 1], was: 0.1}}}"
    made.replace("config/tuning.yaml", "fedcia@fedem:", f"{other}\n  fedcia@fedem:")
    with pytest.raises(ConfigurationError, match=r"unknown paper 'fedemm'\. Did you mean 'fedem'"):
        made.project()


SEARCHED = (
    "papers: {pfedrec: {value: 0.005, source: paper}, fedem: {value: 0.004, source: searched, trials: 16}}"
)
ADOPTED = """\
    fedem:
      rate: {value: 0.0063, source: searched, trials: 16}
      spread: {value: 0.178, source: searched, trials: 16}
    fedrap:
      rate: {value: 0.000133"""
"""What was found for it holds before that."""


def test_a_value_that_was_found_says_in_how_many_trials(made):
    made.replace("config/methods.yaml", "papers: {pfedrec: {value: 0.005, source: paper}}", SEARCHED)
    made.replace("config/methods.yaml", ADOPTED, "    fedrap:\n      rate: {value: 0.000133")
    methods = made.project().methods
    values, sources, _ = resolve(methods, "ncf", "fedem", "any")
    assert (values["rate"], sources["rate"]) == (0.004, "searched, 16 trials")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (", trials: 16", "", "ncf.settings.rate.papers.fedem: key 'trials' is missing: in how many trials"),
        ("searched", "ours", "ncf.settings.rate.papers.fedem.trials: goes with source: searched"),
        ("fedem", "plgc", "no search looks for rate of ncf under plgc. Declare it in the file of searches"),
        ("trials: 16", "trials: 0", "trials: 0 is not allowed: at least 1"),
    ],
)
def test_a_value_that_no_search_found_is_not_marked_so(made, old, new, said):
    marked = SEARCHED.replace(old, new)
    made.replace("config/methods.yaml", "papers: {pfedrec: {value: 0.005, source: paper}}", marked)
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        made.project()
    assert "methods.yaml, line " in str(caught.value)


def test_a_value_that_others_take_over_is_looked_for_where_it_is_written(made):
    """Of fedmf's rate under plgc, found by the search of fedmf, many entries take over the very lines."""
    made.replace(
        "config/methods.yaml",
        "plgc: {value: 0.1, source: ours}",
        "plgc: {value: 0.2, source: searched, trials: 16}",
    )
    with pytest.raises(ConfigurationError, match="rate of pfedrec under plgc") as caught:
        made.project()
    assert len(str(caught.value).splitlines()) == 1
    text = (made.folder / "config/tuning.yaml").read_text()
    made.write("config/tuning.yaml", text + "  pfedrec@plgc:\n    because: so\n    settings: *rates\n")
    made.project()


# What differs with one backbone under one paper

UNCOMPOSED = re.compile(r"^  composed:\n(    .*\n)+", re.MULTILINE)
COMPOSED = """  composed:
    fedmf@plgc:
      rate: {value: 0.03, source: searched, trials: 16, datasets: {lastfm-2k-b: 0.02}}
      beta: {value: 0.7, source: paper}
  backbones:
    fedmf: the item table is kept as C; G is the mean of all C
"""
PLAIN = COMPOSED[COMPOSED.index("  backbones") :]


@pytest.fixture
def plain(made):
    """A project in which no plug-in differs with a backbone."""
    path = "config/methods.yaml"
    made.write(path, UNCOMPOSED.sub("", (made.folder / path).read_text()))
    return made


def test_a_plugin_differs_with_one_backbone_under_one_paper(plain):
    plain.replace("config/methods.yaml", PLAIN, COMPOSED)
    methods = plain.project().methods

    def found(name, paper, dataset="ml-100k"):
        values, sources, _ = resolve(methods, name, paper, dataset)
        return values["rate"], sources["rate"], values.get("beta")

    assert found("fedmf+plgc", "plgc") == (0.03, "searched, 16 trials", 0.7)
    assert found("fedmf+plgc", "plgc", "lastfm-2k-b") == (0.02, "searched, 16 trials", 0.7)
    assert found("fedmf+plgc[rate=5]", "plgc") == (5.0, "user", 0.7)
    assert found("fedmf", "plgc") == (0.507, "searched, 16 trials", None)
    assert found("perfedrec+plgc", "plgc")[2] == 0.5
    assert found("fedmf+plgc", "pfedclr") == (0.01, "paper", 0.5)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fedmf@plgc", "fedmff@plgc", "composed.fedmff@plgc: is no backbone of +plgc and a paper"),
        ("rate:", "rat:", "composed.fedmf@plgc.rat: fedmf+plgc has no setting 'rat'. Did you mean 'rate'?"),
        ("value: 0.03", "value: -1", "composed.fedmf@plgc.rate.value: -1 (integer) is not allowed"),
        ("source: paper", "from: paper", "composed.fedmf@plgc.beta.from: unknown key 'from'"),
        ("0.7, source: paper", "0.7, source: searched, trials: 1", "no search looks for beta of fedmf+plgc under plgc"),
        ("{value: 0.7, source: paper}", "0.7", "must be keys and values"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_differs_is_told(plain, old, new, said):
    plain.replace("config/methods.yaml", PLAIN, COMPOSED.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        plain.project()


def test_what_trains_checks_the_same_without_schemas(plain):
    plain.replace("config/methods.yaml", PLAIN, COMPOSED.replace("rate:", "rat:"))
    with pytest.raises(ConfigurationError, match="fedmf\\+plgc has no setting 'rat'"):
        load_methods(plain.folder / "config/methods.yaml")


def test_the_card_of_a_plugin_tells_what_differs(plain):
    from fedrec.runs.cards import card_text

    plain.replace("config/methods.yaml", PLAIN, COMPOSED)
    text = card_text(plain.project().methods, "+plgc")
    assert "with fedmf under plgc: rate = 0.03 (searched, 16 trials), beta = 0.7 (paper)" in text


# What differs under a paper in settings that another entry has, too

OWN = """  papers:
    fedem:
      rate: {value: 0.004, source: searched, trials: 16}
    pfedrec:
      rate: {value: 0.006, source: ours, datasets: {ml-1m: 0.007}}
"""


def with_own(made, text=OWN):
    """Gives NCF what differs under papers, and nothing else."""
    path = "config/methods.yaml"
    lines = (made.folder / path).read_text()
    start = lines.index("\nncf:\n")
    head, entry, tail = lines[:start], *lines[start:].split("\n\n", 1)
    entry = re.sub(r"\n  papers:(\n    .*)+", "", entry)
    made.write(path, f"{head}{entry}\n{text}\n{tail}")


def test_an_entry_differs_under_a_paper_in_what_it_takes_over(made):
    with_own(made)
    methods = made.project().methods

    def found(name, paper, dataset="ml-100k"):
        values, sources, _ = resolve(methods, name, paper, dataset)
        return values["rate"], sources["rate"]

    assert found("ncf", "fedem") == (0.004, "searched, 16 trials")
    # Before what the setting itself says of the paper.
    assert found("ncf", "pfedrec") == (0.006, "ours")
    assert found("ncf", "pfedrec", "ml-1m") == (0.007, "ours")
    assert found("ncf", "plgc") == (0.001, "ours")
    assert found("ncf[rate=5]", "fedem") == (5.0, "user")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("rate:", "rat:", "ncf.papers.fedem.rat: ncf has no setting 'rat'. Did you mean 'rate'?"),
        ("0.004", "-1", "ncf.papers.fedem.rate.value: -1 (integer) is not allowed"),
        (", trials: 16", "", "ncf.papers.fedem.rate: key 'trials' is missing"),
        ("fedem:", "plgc:", "no search looks for rate of ncf under plgc"),
    ],
)
def test_a_mistake_in_an_entrys_own_papers_is_told(made, old, new, said):
    with_own(made, OWN.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        made.project()


def test_the_card_of_a_method_tells_what_differs_with_the_setting(made):
    from fedrec.runs.cards import card_text

    with_own(made)
    text = card_text(made.project().methods, "ncf")
    assert "elsewhere: pfedrec 0.006 (ours), fedem 0.004 (searched, 16 trials)" in text
