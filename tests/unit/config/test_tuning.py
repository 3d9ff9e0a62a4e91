"""Searches as configuration: what may be searched and what not, and values that are marked as found by one."""

import re
from collections import Counter
from dataclasses import replace

import pytest
import yaml

from fedrec.config.catalogue import load_catalogue
from fedrec.config.found_file import findings_text
from fedrec.config.method_entries import Finding
from fedrec.config.methods import Methods, entries_of, load_methods, resolve, settings_in
from fedrec.config.names import parse
from fedrec.config.tuning import fixed_settings, load_tuning, name_with_finding, tuned_name
from fedrec.errors import ConfigurationError
from fedrec.plan.runs import papers_in
from tests.conftest import ROOT
from tests.projects import Made

METHODS = load_methods(ROOT / "config/methods.yaml")
DEFAULT = {"datasets": ["ml-100k"], "trials_per_setting": 4, "most_trials": 9, "design": 0, "seed": 1000}
RATE = {"log": [0.001, 1]}


def loaded(folder, searches, **changes):
    path = folder / "tuning.yaml"
    path.write_text(yaml.safe_dump(DEFAULT | {"searches": searches} | changes, sort_keys=False))
    return load_tuning(path, METHODS)


def search(settings, **changes):
    return {"because": "nobody says", "settings": settings} | changes


def test_a_search_is_read_as_names_of_runs_spell_it(tmp_path):
    ranges = {
        "rate": RATE,
        "early_stop": {"choice": [None, 0.0001]},
        "layers": {"choice": [[32, 16, 8], [64]]},
    }
    tuning = loaded(tmp_path, {"fedncf+plgc@plgc": search(ranges)})
    (one,) = tuning.searches.values()
    assert (one.target, one.paper, one.dataset) == ("tune_fedncf_plgc_plgc_ml_100k", "plgc", "ml-100k")
    assert one.method == "fedncf+plgc"
    assert [(part.setting, part.bounds, part.choices, part.was) for part in one.ranges] == [
        ("rate", (0.001, 1.0), (), "0.5"),
        ("early_stop", None, ("null", "0.0001"), "null"),
        ("layers", None, ("32x16x8", "64"), "32x16x8"),
    ]


@pytest.mark.parametrize(
    ("key", "entry", "said"),
    [
        ("fedmff@fedem", search({"rate": RATE}), "unknown method 'fedmff'. Did you mean 'fedmf'?"),
        ("fedmf+plgq@plgc", search({"rate": RATE}), "unknown plug-in 'plgq'. Did you mean 'plgc'?"),
        ("pfedclr+em@fedem", search({"merge": RATE}), "em does not support pfedclr"),
        ("ncf@fedem", search({"rat": RATE}), "settings.rat: ncf has no setting 'rat'. Did you mean 'rate'?"),
        ("fedmf@fedem", search({"rate": RATE}), "fedem states rate = 0.1. Settings that a paper states are not searched."),
        ("centrap@fedrap", search({"rounds": {"linear": [1, 9]}}), "is the length of a trial"),
        ("ncf@fedem", search({"rate": {}}), "settings.rate: give exactly one of log, linear, choice"),
        ("ncf@fedem", search({"rate": RATE | {"choice": [0.1, 1]}}), "give exactly one of log, linear, choice"),
        ("ncf@fedem", search({"rate": {"log": [0, 1]}}), "a range of type log must start above 0, not at 0"),
        ("ncf@fedem", search({"rate": {"log": [-1, 1]}}), "a range of type log must start above 0, not at -1"),
        ("ncf@fedem", search({"rate": {"linear": [1, 1]}}), "the lowest value, 1, must be below the highest, 1."),
        ("ncf@fedem", search({"rate": {"linear": [1, 2000]}}), "2000 (integer) is not allowed: learning"),
        ("ncf@fedem", search({"rate": {"linear": [0, 1, 2]}}), "may have 2 at most"),
        ("ncf@fedem", search({"rate": {"choice": [1]}}), "choice: has 1 entries, needs at least 2"),
        ("ncf@fedem", search({"rate": {"choice": [1, "a"]}}), "choice[1]: 'a' (text) is not allowed"),
        ("ncf@fedem", search({"rate": {"choice": [1, 1]}}), "is in the list twice"),
        ("ncf@fedem", search({}), "settings: has 0 entries"),
        ("fedcia@fedem", search({"fitting": {"log": [1, 2]}}), "is for numbers only, and this setting is one of"),
        ("ncf@fedem", {"settings": {"rate": RATE}}, "Expected: what the paper leaves open."),
        ("ncf", search({"rate": RATE}), "does not match"),
        ("ncf@fedem", search({"rate": RATE}, held={"d": 8}), "unknown key 'held'"),
        ("ncf@fedem", search({"rate": RATE}, datasets=[]), "datasets: has 0 entries"),
        ("fedmf@fedem", search({"rate": RATE | {"from": "code"}}), "'code' (text) is not allowed"),
        ("ncf@fedem", search({"rate": RATE}, starts=[]), "starts: has 0 entries"),
        ("ncf@fedem", search({"rate": RATE}, starts=[{}]), "starts[0]: has 0 entries"),
        ("ncf@fedem", search({"rate": RATE}, starts=[{"rate": 1}, {"spread": 1}]), "starts[1].spread: it is not searched"),
        ("ncf@fedem", search({"rate": RATE}, starts=[{"rat": 1}]), "searched. Did you mean 'rate'?"),
        ("ncf@fedem", search({"rate": RATE}, starts=[{"rate": -1}]), "starts[0].rate: -1 (integer) is not allowed"),
        ("ncf@fedem", search({"rate": RATE}, starts=[{"rate": n} for n in (1, 2, 3, 4)]), "with the "
                                                                                          "starting values "
                                                                                          "these are 5 "
                                                                                          "points, for 4 "
                                                                                          "trials."),
        ("fedmf[optimiser=sgd][d=8]@clean", search({"rate": RATE}), "write fedmf[d=8][optimiser=sgd]@clean"),
        ("fedmf[optimiser=sgd]@fedem", search({"d": {"choice": [8, 16]}}), "only a search under clean may have settings in its name."),
        ("fedmf[rounds=9]@clean", search({"rate": RATE}), "'rounds' sets the length of a trial. Remove it from the name."),
        ("fedmf[rate=0.1]@clean", search({"rate": RATE}), "fedmf[rate=0.1] sets it already: 0.1."),
        ("fedmf[optimiser=sdg]@clean", search({"rate": RATE}), "optimiser=sdg is not allowed"),
    ],
)  # fmt: skip
def test_a_mistake_in_a_search_is_reported_where_it_stands(tmp_path, key, entry, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        loaded(tmp_path, {key: entry})
    assert "tuning.yaml, line " in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"most_trials": 0}, "most_trials: 0 is not allowed: at least 1"),
        ({"seed": -1}, "seed: -1 is not allowed"),
        ({"most_trails": 3}, "unknown key 'most_trails'. Did you mean 'most_trials'?"),
        ({"halving": {"rounds": [], "keep": 0.5}}, "halving.rounds: has 0 entries"),
        ({"halving": {"rounds": [20, 10], "keep": 0.5}}, "write the rounds in increasing order."),
        ({"halving": {"rounds": [10], "keep": 1}}, "halving.keep: 1"),
        ({"final": {"keep": 4}}, "final: key 'seeds' is missing"),
        ({"final": {"keep": 0, "seeds": 3}}, "final.keep: 0 is not allowed: at least 1"),
        ({"final": {"keep": 4, "seeds": 1}}, "final.seeds: 1 is not allowed: at least 2"),
    ],
)
def test_a_mistake_in_what_searches_have_in_common_is_reported(tmp_path, changes, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        loaded(tmp_path, {"ncf@fedem": search({"rate": RATE})}, **changes)


def test_a_search_is_made_on_each_of_its_datasets(tmp_path):
    searches = {
        "ncf@fedem": search({"rate": RATE}),
        "fedrap@fedrap": search({"v2": RATE}, datasets=["lastfm-2k-b", "ml-1m"]),
    }
    tuning = loaded(tmp_path, searches, datasets=["ml-100k", "filmtrust"])
    assert list(tuning.searches) == [
        "tune_ncf_fedem_ml_100k",
        "tune_ncf_fedem_filmtrust",
        "tune_fedrap_fedrap_lastfm_2k_b",
        "tune_fedrap_fedrap_ml_1m",
    ]
    # Without the search it is another value on one of them.
    assert [one.ranges[0].was for one in tuning.searches.values()] == ["0.001", "0.001", "1", "0.1"]


def test_two_searches_of_one_name_are_refused(tmp_path):
    searches = {"ncf@fedem": search({"rate": RATE}, datasets=["ml-1m", "ml.1m"])}
    with pytest.raises(ConfigurationError, match="would both be tune_ncf_fedem_ml_1m"):
        loaded(tmp_path, searches)


def test_a_grid_that_a_paper_states_is_searched_where_the_file_says_so(tmp_path):
    tuning = loaded(tmp_path, {"fedmf@fedem": search({"rate": RATE | {"from": "paper"}})})
    assert [one.ranges[0].was for one in tuning.searches.values()] == ["0.1"]


def test_all_searches_of_the_project_are_on_datasets_of_their_papers():
    tuning = load_tuning(ROOT / "config/tuning.yaml", METHODS)
    catalogue = load_catalogue(ROOT / "config/datasets.yaml")
    of_papers = [one for one in tuning.searches.values() if one.protocol == "published"]
    assert [one for one in of_papers if one.paper not in catalogue[one.dataset].papers] == []
    assert {one.dataset for one in tuning.under_shared_protocol} <= {*catalogue}


# What a search has to do with the rest of the configuration


@pytest.fixture
def made(tmp_path):
    return Made(tmp_path)


@pytest.mark.parametrize("seed", [1000, 1002])
def test_a_seed_of_trials_is_not_reported(made, seed):
    with pytest.raises(
        ConfigurationError, match=rf"seeds\[1\]: {seed} is a seed of trials .config/tuning.yaml"
    ):
        made.project(seeds=[0, seed])
    assert made.project(seeds=[0, 1003]).seeds == [0, 1003]


def test_a_search_follows_a_paper_that_there_is(made):
    other = "fedcia@fedemm: {because: why, settings: {rate: {log: [0.1, 1]}}}"
    made.replace("config/tuning.yaml", "fedcia@fedem:", f"{other}\n  fedcia@fedem:")
    with pytest.raises(ConfigurationError, match=r"unknown paper 'fedemm'\. Did you mean 'fedem'"):
        made.project()


# What searches found

FOUND = {"trials": 32, "settings": {"rate": 0.004, "spread": 0.5}, "held": {"d": 16}}


def with_findings(made, content):
    made.write("config/found.yaml", yaml.safe_dump(content, sort_keys=False))
    return made.project().methods


def of_ncf(methods, dataset, name="ncf", paper="fedem"):
    values, sources, _ = resolve(methods, name, paper, dataset)
    return values["rate"], sources["rate"]


def test_a_value_that_was_found_says_in_how_many_trials_and_where(made):
    methods = with_findings(made, {"ncf@fedem": {"ml-100k": FOUND}})
    assert of_ncf(methods, "ml-100k") == (0.004, "searched, 32 trials")
    assert of_ncf(methods, "filmtrust") == (0.004, "searched on ml-100k, 32 trials")
    assert of_ncf(methods, "ml-100k", "ncf[rate=0.2]") == (0.2, "user")
    assert of_ncf(methods, "ml-100k", paper="pfedclr") == (0.001, "ours")
    assert of_ncf(methods.unsearched, "ml-100k") == (0.001, "ours")


def test_what_was_found_on_a_dataset_comes_first_there(made):
    text = (made.folder / "config/tuning.yaml").read_text()
    made.write(
        "config/tuning.yaml",
        text.replace("  ncf@fedem:\n", "  ncf@fedem:\n    datasets: [ml-100k, filmtrust]\n"),
    )
    other = FOUND | {"trials": 8, "settings": {"rate": 0.02}}
    methods = with_findings(made, {"ncf@fedem": {"ml-100k": FOUND, "filmtrust": other}})
    assert of_ncf(methods, "filmtrust") == (0.02, "searched, 8 trials")
    # What was not found there has nothing of what was found elsewhere: the two were found together.
    assert resolve(methods, "ncf", "fedem", "filmtrust")[0]["spread"] == 0.01
    assert of_ncf(methods, "ml-1m") == (0.004, "searched on ml-100k, 32 trials")


def test_what_is_stated_of_a_dataset_comes_before_what_was_found_on_another(made):
    """FedRAP's code has another v2 on one dataset."""
    found = {"trials": 48, "settings": {"v1": 0.001, "v2": 0.01}, "held": {"curriculum": "tanh"}}
    methods = with_findings(made, {"fedrap@fedrap": {"ml-100k": found}})
    values, sources, _ = resolve(methods, "fedrap", "fedrap", "lastfm-2k-b")
    assert (values["v1"], sources["v1"]) == (0.001, "searched on ml-100k, 48 trials")
    assert (values["v2"], sources["v2"]) == (1.0, "code")
    assert resolve(methods, "fedrap", "fedrap", "tafeng")[0]["v2"] == 0.01


def test_what_was_found_for_a_backbone_holds_with_a_plugin_unless_it_was_searched_with_it(made):
    backbone = {"trials": 32, "settings": {"rate": 0.3, "item_factor": 7.0}, "held": {}}
    both = {"trials": 48, "settings": {"rate": 0.4}, "held": {}}
    methods = with_findings(made, {"fedmf@plgc": {"ml-100k": backbone}, "fedmf+plgc@plgc": {"ml-100k": both}})
    values, _, _ = resolve(methods, "fedmf+plgc", "plgc", "ml-100k")
    assert (values["rate"], values["item_factor"]) == (0.4, 7.0)
    values, _, _ = resolve(methods, "fedmf", "plgc", "ml-100k")
    assert (values["rate"], values["item_factor"]) == (0.3, 7.0)


@pytest.mark.parametrize(
    ("key", "dataset", "changes", "said"),
    [
        ("ncf@plgc", "ml-100k", {}, "no search for ncf@plgc on ml-100k is declared."),
        ("ncf@fedem", "ml-1m", {}, "is declared. Declare it in the file of searches."),
        ("ncff@fedem", "ml-100k", {}, "unknown method 'ncff'. Did you mean 'ncf'?"),
        ("ncf@fedem", "ml-100k", {"trials": 0}, "trials: 0 is not allowed: at least 1"),
        ("ncf@fedem", "ml-100k", {"settings": {"rat": 1}}, "settings.rat: ncf has no setting 'rat'. Did you"),
        ("ncf@fedem", "ml-100k", {"settings": {"rate": -1}}, "settings.rate: -1 (integer) is not allowed"),
        ("ncf@fedem", "ml-100k", {"settings": {"d": 8}}, "the search ncf@fedem does not search it."),
        ("ncf@fedem", "ml-100k", {"held": {"d": 8}}, "it was searched with d = 8, which is 16 in reported runs. Remove the entry, and search again. To try 16, undo this, and train ncf[d=16]."),
        ("ncf@fedem", "ml-100k", {"held": {"rate": 1}}, "it was searched with rate = 1, which is searched, or missing in reported runs."),
        ("ncf@fedem", "ml-100k", {"more": 1}, "unknown key 'more'"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_was_found_is_reported(made, key, dataset, changes, said):
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        with_findings(made, {key: {dataset: FOUND | changes}})
    assert "found.yaml, line " in str(caught.value)


def test_a_search_for_another_model_than_the_reported_one_is_refused(made):
    """Of FedRAP that fixes its strengths nothing holds where the reported one raises them."""
    found = {"trials": 48, "settings": {"v1": 0.001}, "held": {"curriculum": "fixed"}}
    with pytest.raises(
        ConfigurationError, match=r"it was searched with curriculum = fixed, which is tanh in reported runs\."
    ):
        with_findings(made, {"fedrap@fedrap": {"ml-100k": found}})
    made.replace("config/methods.yaml", "value: tanh, source: paper", "value: fixed, source: paper")
    with_findings(made, {"fedrap@fedrap": {"ml-100k": found}})


def test_all_that_was_found_holds_what_runs_have_that_are_reported(made):
    """The file that comes with the project says of every setting that was not searched what it was."""
    project = made.project()
    content = yaml.safe_load((made.folder / "config/found.yaml").read_text())
    for one in project.tuning.searches.values():
        if found := content.get(one.key, {}).get(one.dataset):
            assert found["held"] == fixed_settings(one, project.methods), one.target


def test_what_trains_needs_no_file_of_what_was_found_and_checks_the_one_it_has(tmp_path):
    path = tmp_path / "methods.yaml"
    path.write_text((ROOT / "config/methods.yaml").read_text())
    assert of_ncf(load_methods(path), "ml-100k") == (0.001, "ours")
    other = tmp_path / "other.yaml"
    for where in (tmp_path / "found.yaml", other):
        where.write_text(yaml.safe_dump({"ncf@fedem": {"ml-100k": FOUND}}))
        assert of_ncf(load_methods(path, where), "ml-100k") == (0.004, "searched, 32 trials")
    assert of_ncf(load_methods(path), "ml-100k") == (0.004, "searched, 32 trials")
    other.write_text(yaml.safe_dump({"ncf@fedem": {"ml-100k": FOUND | {"settings": {"rate": -1}}}}))
    with pytest.raises(ConfigurationError, match=r"settings\.rate: -1"):
        load_methods(path, other)


def test_what_was_found_is_written_sorted_below_the_comments_and_reads_back():
    found = {
        "ncf@fedem": {"ml-1m": Finding(8, {"rate": 0.00001, "spread": 2.0}, {"layers": [16], "d": 16})},
        "mf@fedem": {"ml-100k": Finding(16, {"rate": 1e-7}, {"early_stop": None, "mixing": "on"})},
        "mf[d=8]@clean": {"ml-100k": Finding(16, {"rate": 0.1}, {"d": 8}, 3, 0.00005)},
    }
    text = findings_text("# first\n# second\nold@x: {}\n", found)
    assert text.startswith("# first\n# second\nmf@fedem:\n  ml-100k:\n    trials: 16\n")
    assert "held: {d: 16, layers: [16]}" in text
    assert findings_text(text, found) == text
    assert "mf[d=8]@clean:\n  ml-100k:\n    trials: 16\n    seeds: 3\n    validation: 5.0e-05\n" in text
    # What was found before seeds and validation were noted has neither.
    assert text.count("validation") == text.count("seeds") == 1
    assert {
        key: {dataset: Finding(**one) for dataset, one in datasets.items()}
        for key, datasets in yaml.safe_load(text).items()
    } == found
    assert yaml.safe_load(findings_text(text, {})) == {}


# Searches of no paper


CLEAN = {
    "because": "all are tuned alike",
    "datasets": ["ml-1m"],
    "settings": {"rate": RATE},
    "validation": "exact",
}


def tuned_under_clean(made, *names):
    """The project with what such searches found."""
    search_under_clean(made, *names)
    found = {"trials": 16, "settings": {"rate": 0.3}, "held": {}}
    made.write("config/found.yaml", yaml.safe_dump({f"{name}@clean": {"ml-1m": found} for name in names}))
    return made.project()


def search_under_clean(made, *names):
    """Has such searches in the project, and no others under the shared protocol."""
    path = made.folder / "config/tuning.yaml"
    content = yaml.safe_load(path.read_text())
    of_papers = {key: one for key, one in content["searches"].items() if not key.endswith("@clean")}
    searches = of_papers | {f"{name}@clean": CLEAN for name in names}
    path.write_text(yaml.safe_dump(content | {"searches": searches}))


def test_under_the_shared_protocol_what_a_paper_states_is_searched_too(tmp_path):
    tuning = loaded(tmp_path, {"fedmf@clean": CLEAN, "fcf@clean": CLEAN})
    fedmf, fcf = tuning.searches.values()
    assert (fedmf.target, fedmf.protocol, fedmf.exact) == ("tune_fedmf_clean_ml_1m", "clean", True)
    # With the settings of the method's own paper besides, or of none.
    assert (fedmf.paper, fcf.paper) == ("pfedclr", "own")
    with pytest.raises(ConfigurationError, match=r"Settings that a paper states are not searched\."):
        loaded(tmp_path, {"fedmf@pfedclr": CLEAN})


@pytest.mark.parametrize("name", ["fedmf", "fedmf+plgc"])
def test_no_run_has_what_was_found_under_the_shared_protocol_but_by_its_name(made, name):
    before = made.project().methods.unsearched
    project = tuned_under_clean(made, name)
    (search,) = (one for one in project.tuning.searches.values() if one.protocol == "clean")
    assert papers_in(project.methods) == papers_in(before)
    for paper in papers_in(project.methods):
        assert resolve(project.methods, name, paper, "ml-1m") == resolve(before, name, paper, "ml-1m")
    assert name_with_finding(project.methods, search) == f"{name}[rate=0.3]"
    assert name_with_finding(before, search) == name


def test_a_search_of_a_method_of_no_paper_is_planned(made):
    project = tuned_under_clean(made, "fcf", "fedmf")
    assert project.tuning.searches["tune_fcf_clean_ml_1m"].paper == "own"


RATES = ("rate", "item_rate", "item_factor")
PULLS = ("reg", "l2", "penalty", "weight_decay", "tower_decay", "mu", "v2")
SHARED = {"d": ("16", "32", "64"), "local_epochs": ("1", "5", "10")}
TUNED = {
    "mf", "ncf", "lightgcn", "bpr-mf", "ease", "ials", "item-knn", "centrap", "fedmf", "fedncf", "fedrecon",
    "fedfast", "colr", "pfedgraph", "gpfedrec", "perfedrec", "fedcia", "pfedrec", "fedrap", "pfedclr", "fedem",
    "fedmf+plgc", "fedmf+em", "fcf", "fedease", "fism", "fedadam", "fedprox",
}  # fmt: skip


def alike_in_the_project():
    return load_tuning(ROOT / "config/tuning.yaml", METHODS).under_shared_protocol


def broken_rules(search):
    """What of the rule of freedom, as config/tuning.yaml and docs/leaderboard.md state it, a search breaks."""
    known = settings_in(entries_of(METHODS, parse(search.method)))
    ranges = {one.setting: one for one in search.ranges}
    pulls = [name for name in PULLS if name in known and known[name].type == "number"]
    own = ranges.keys() - {*RATES, *SHARED, *pulls}
    return [
        *(name for name in (*RATES, *SHARED) if name in known and name not in ranges),
        *(name for name, values in SHARED.items() if name in ranges and ranges[name].choices != values),
        *(["pull"] if pulls and len(ranges.keys() & pulls) != 1 else []),
        *(["own"] if len(own) > 3 else []),
        *(["too many"] if len(ranges) > 6 else []),
        *([] if search.exact else ["validation"]),
    ]


def test_every_method_is_searched_with_the_same_freedom_on_the_same_datasets():
    searches = alike_in_the_project()
    assert {search.key: broken for search in searches if (broken := broken_rules(search))} == {}
    datasets = dict.fromkeys(search.dataset for search in searches)
    assert list(datasets) == [
        "ml-100k", "ml-1m", "lastfm-2k-b", "douban-book", "amazon-video-a", "filmtrust"
    ]  # fmt: skip
    assert {(search.name, search.dataset) for search in searches} == {
        (name, dataset) for name in TUNED for dataset in datasets
    }


def test_the_page_of_the_leaderboard_states_the_budget_of_its_searches():
    tuning = load_tuning(ROOT / "config/tuning.yaml", METHODS)
    page = (ROOT / "docs/leaderboard.md").read_text(encoding="utf-8")
    text = " ".join(page.split())
    table = page.partition("| methods on MovieLens 100K |")[2].partition("\n\n")[0]
    stated: Counter[int] = Counter()
    for methods, trials in re.findall(r"^\| ([^|]*\w) \| [\w ]+ \| (\d+) \|$", table, re.M):
        others = re.fullmatch(r"the (\d+) others", methods)
        stated[int(trials)] += int(others[1]) if others else len(methods.split(", "))
    assert stated == trials_of_methods(tuning, "ml-100k") == {16: 2, 32: 1, 48: 3, 64: 21, 66: 1}
    # Three ways of 16 trials have 6 each.
    assert trials_of_methods(tuning, "ml-1m") == {16: 27, 18: 1}
    assert "On each other dataset a method has 16 trials" in text
    ways = Counter(search.name for search in tuning.under_shared_protocol if search.dataset == "ml-100k")
    assert Counter(ways.values()) == {1: 11, 2: 16, 3: 1}
    assert "46 searches for 28 methods" in text
    assert "16 methods have two ways, FedEM has three" in text


def trials_of_methods(tuning, dataset):
    """How many methods have how many trials."""
    trials = Counter()
    for search in tuning.under_shared_protocol:
        if search.dataset == dataset:
            trials[search.name] += tuning.trials_of(search)
    return Counter(trials.values())


@pytest.mark.parametrize(
    ("taken", "broken"),
    [
        ("rate", "rate"),
        ("item_rate", "item_rate"),
        ("d", "d"),
        ("local_epochs", "local_epochs"),
        ("v2", "pull"),
    ],
)
def test_a_search_with_less_freedom_breaks_the_rule(taken, broken):
    search = next(one for one in alike_in_the_project() if one.method == "fedrap")
    fewer = tuple(one for one in search.ranges if one.setting != taken)
    assert broken_rules(replace(search, ranges=fewer)) == [broken]


def test_searches_on_other_datasets_start_from_what_one_found_and_have_fewer_trials(tmp_path):
    found = {"fedmf": {"clean": {"ml-100k": Finding(9, {"rate": 0.02, "d": 64}, {})}}}
    methods = Methods({name: replace(METHODS[name], findings=found.get(name, {})) for name in METHODS})
    ranges = {"rate": RATE, "d": {"choice": [16, 32, 64]}, "item_factor": RATE}
    entry = search(ranges, datasets=["ml-100k", "ml-1m"], starts=[{"rate": 0.5}])
    of_paper = search(
        {"rate": RATE, "item_factor": RATE, "gamma": RATE}, datasets=["ml-1m"], starts=[{"rate": 0.5}]
    )
    searches = {"fedmf@clean": entry, "fedprox@clean": entry, "fedmf+plgc@plgc": of_paper}
    transfer = {"source": "ml-100k", "most_trials": 5}
    path = tmp_path / "tuning.yaml"
    path.write_text(yaml.safe_dump(DEFAULT | {"transfer": transfer, "searches": searches}, sort_keys=False))
    tuning = load_tuning(path, methods)
    source, other, _, without, of_paper = tuning.searches.values()
    assert source.starts == without.starts == (("0.5", "16", "1"),)
    # A setting that the finding leaves out has its value without the search.
    assert other.starts == (("0.02", "64", "1"), ("0.5", "16", "1"))
    assert len(of_paper.starts) == 1
    assert [tuning.trials_of(one) for one in (source, other, of_paper)] == [9, 5, 9]


def test_a_backbone_is_tuned_alike(tmp_path):
    loaded(tmp_path, {"fedmf@clean": CLEAN, "pfedrec@clean": CLEAN | {"backbone": "fedmf"}})
    elsewhere = CLEAN | {"datasets": ["ml-100k"]}
    with pytest.raises(ConfigurationError, match="there is no search fedmf@clean on ml-1m"):
        loaded(tmp_path, {"fedmf@clean": elsewhere, "pfedrec@clean": CLEAN | {"backbone": "fedmf"}})


def test_a_start_has_values_without_the_search_for_what_it_leaves_out(tmp_path):
    ranges = {"rate": RATE, "early_stop": {"choice": [None, 0.0001]}, "layers": {"choice": [[16], [64]]}}
    starts = [{"layers": [8, 4]}, {"rate": 5, "early_stop": 0.0001}]
    tuning = loaded(tmp_path, {"fedncf@clean": search(ranges, starts=starts)})
    (one,) = tuning.searches.values()
    first = tuple(part.was for part in one.ranges)
    # Values may lie outside of the ranges.
    assert one.starts == ((*first[:2], "8x4"), ("5", "0.0001", first[2]))


# Ways to train a method

SGD = "fedmf[item_scale=items][optimiser=sgd][weighting=equal]"


def test_settings_in_the_name_of_a_search_are_those_of_all_its_trials(tmp_path):
    tuning = loaded(tmp_path, {f"{SGD}@clean": CLEAN, "fedmf@clean": CLEAN})
    sgd, plain = tuning.searches.values()
    assert sgd.target == "tune_fedmf_item_scale_items_optimiser_sgd_weighting_equal_clean_ml_1m"
    assert (sgd.method, sgd.name, plain.method) == (SGD, "fedmf", "fedmf")
    held = fixed_settings(sgd, METHODS)
    assert (held["item_scale"], held["optimiser"], held["weighting"]) == ("items", "sgd", "equal")
    assert "rate" not in held


def test_a_backbone_is_the_plain_method_whatever_its_ways(tmp_path):
    alike = {f"{SGD}@clean": CLEAN, "pfedrec@clean": CLEAN | {"backbone": "fedmf"}}
    assert loaded(tmp_path, alike).searches["tune_pfedrec_clean_ml_1m"].backbone == "fedmf"


@pytest.mark.parametrize(
    ("key", "changes"), [("validation", {"validation": "sampled"}), ("backbone", {"backbone": "ncf"})]
)
def test_the_ways_of_a_method_are_compared_by_one_number_and_build_on_one_method(tmp_path, key, changes):
    with pytest.raises(
        ConfigurationError, match=f"'{key}' differs from fedmf@clean, another variant of fedmf"
    ):
        loaded(tmp_path, {"fedmf@clean": CLEAN, "ncf@clean": CLEAN, f"{SGD}@clean": CLEAN | changes})


WAYS_FOUND = {"trials": 4, "seeds": 3, "validation": 0.05, "settings": {"rate": 0.3}, "held": {}}


def of_ways(made, first, name="fedmf", sgd=SGD):
    """The methods with findings for two ways of one; `first` is that of the plain method."""
    search_under_clean(made, name, sgd)
    second = WAYS_FOUND | {"validation": 0.06, "settings": {"rate": 0.7}}
    return with_findings(made, {f"{name}@clean": {"ml-1m": first}, f"{sgd}@clean": {"ml-1m": second}})


@pytest.mark.parametrize(
    ("name", "sgd"), [("fedmf", SGD), ("fedmf+plgc", SGD.replace("fedmf[", "fedmf+plgc["))]
)
def test_with_tuned_settings_a_run_has_those_of_the_way_that_is_best_on_validation(made, name, sgd):
    methods = of_ways(made, WAYS_FOUND, name, sgd)
    assert tuned_name(methods, name, "ml-1m")[1] == sgd.replace("[w", "[rate=0.7][w")
    assert tuned_name(methods, name, "filmtrust") is None
    # No paper's run has it.
    for paper in papers_in(methods):
        plain = resolve(methods.unsearched, name, paper, "ml-1m")
        assert resolve(methods, name, paper, "ml-1m") == plain
    worse = of_ways(made, WAYS_FOUND | {"validation": 0.07}, name, sgd)
    assert tuned_name(worse, name, "ml-1m")[1] == f"{name}[rate=0.3]"


def test_a_finding_without_validation_cannot_be_compared_with_another_way(made):
    said = (
        "fedmf@clean.ml-1m: it has no 'validation', which is needed to compare it with "
        f"{SGD}@clean, another variant of fedmf"
    )
    with pytest.raises(ConfigurationError, match=re.escape(said)) as caught:
        of_ways(made, {key: WAYS_FOUND[key] for key in ("trials", "settings", "held")})
    assert "found.yaml, line " in str(caught.value)


def test_what_was_found_for_a_way_holds_its_settings(made):
    search_under_clean(made, SGD)
    found = {"trials": 4, "settings": {"rate": 0.3}, "held": {"optimiser": "adam"}}
    with pytest.raises(
        ConfigurationError, match=r"it was searched with optimiser = adam, which is sgd in reported runs\."
    ):
        with_findings(made, {f"{SGD}@clean": {"ml-1m": found}})


def test_seeds_are_noted_with_the_number_that_they_are_the_mean_of(made):
    with pytest.raises(ConfigurationError, match="'validation' is a dependency of 'seeds'"):
        with_findings(made, {"ncf@fedem": {"ml-100k": FOUND | {"seeds": 3}}})


def test_controls_are_methods(tmp_path):
    assert loaded(tmp_path, {"fedmf@clean": CLEAN}, controls=["popularity"]).controls == ("popularity",)
    with pytest.raises(ConfigurationError, match="unknown method 'popularty'"):
        loaded(tmp_path, {"fedmf@clean": CLEAN}, controls=["popularty"])


# What differs with one backbone under one paper

UNCOMPOSED = re.compile(r"^  composed:\n(    .*\n)+", re.MULTILINE)
COMPOSED = """  composed:
    fedmf@plgc:
      head_rate: {value: 0.03, source: code, datasets: {lastfm-2k-b: 0.02}}
      beta: {value: 0.7, source: paper}
  backbones:
    fedmf: the item table is kept as C; G is the mean of all C
"""
PLAIN = COMPOSED[COMPOSED.index("  backbones") :]


@pytest.fixture
def plain(made):
    """A project in which no plug-in differs with a backbone, and nothing was found."""
    path = "config/methods.yaml"
    made.write("config/found.yaml", "{}")
    made.write(path, UNCOMPOSED.sub("", (made.folder / path).read_text()))
    return made


def test_a_plugin_differs_with_one_backbone_under_one_paper(plain):
    plain.replace("config/methods.yaml", PLAIN, COMPOSED)
    methods = plain.project().methods

    def found(name, paper, dataset="ml-100k"):
        values, sources, _ = resolve(methods, name, paper, dataset)
        return values.get("head_rate"), sources.get("head_rate"), values.get("beta")

    assert found("fedmf+plgc", "plgc") == (0.03, "code", 0.7)
    assert found("fedmf+plgc", "plgc", "lastfm-2k-b") == (0.02, "code", 0.7)
    assert found("fedmf+plgc[head_rate=5]", "plgc") == (5.0, "user", 0.7)
    assert found("fedmf", "plgc") == (None, None, None)
    assert found("perfedrec+plgc", "plgc") == (0.1, "ours", 0.5)
    assert found("fedmf+plgc", "pfedclr") == (0.1, "ours", 0.5)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("fedmf@plgc", "fedmff@plgc", "is not a backbone of +plgc with a paper."),
        ("head_rate:", "rat:", "composed.fedmf@plgc.rat: fedmf+plgc has no setting 'rat'. Did you mean 'rate'?"),
        ("value: 0.03", "value: -1", "composed.fedmf@plgc.head_rate.value: -1 (integer) is not allowed"),
        ("source: paper", "from: paper", "composed.fedmf@plgc.beta.from: unknown key 'from'"),
        ("0.7, source: paper", "0.7, source: searched", "'searched' (text) is not allowed. Write one of: paper, code"),
        ("{value: 0.7, source: paper}", "0.7", "must be keys and values"),
    ],
)  # fmt: skip
def test_a_mistake_in_what_differs_is_reported(plain, old, new, said):
    plain.replace("config/methods.yaml", PLAIN, COMPOSED.replace(old, new, 1))
    with pytest.raises(ConfigurationError, match=re.escape(said)):
        plain.project()


def test_what_trains_checks_the_same_without_schemas(plain):
    plain.replace("config/methods.yaml", PLAIN, COMPOSED.replace("head_rate:", "rat:"))
    with pytest.raises(ConfigurationError, match="fedmf\\+plgc has no setting 'rat'"):
        load_methods(plain.folder / "config/methods.yaml")


def test_the_card_of_a_plugin_tells_what_differs(plain):
    from fedrec.runs.method_info import format_method

    plain.replace("config/methods.yaml", PLAIN, COMPOSED)
    text = format_method(plain.project().methods, "+plgc")
    assert "with fedmf under plgc: head_rate = 0.03 (code), beta = 0.7 (paper)" in text


def test_a_card_tells_what_was_found(made):
    from fedrec.runs.method_info import format_method

    found = {"trials": 32, "settings": {"rate": 0.3, "item_factor": 7.0}, "held": {}}
    methods = with_findings(made, {"fedmf@plgc": {"ml-100k": found}, "fedmf+plgc@plgc": {"ml-100k": found}})
    told = "found under plgc on ml-100k (32 trials): rate = 0.3, item_factor = 7"
    assert told in format_method(methods, "fedmf")
    assert told.replace("under", "with fedmf under") in format_method(methods, "+plgc")
    assert "found" not in format_method(methods, "ncf")
