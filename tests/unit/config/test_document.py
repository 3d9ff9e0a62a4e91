from dataclasses import replace

import pytest

from fedrec.config.catalogue import load_catalogue
from fedrec.config.document import Document, document_of
from fedrec.config.protocol import rules_name
from fedrec.config.protocol_file import load_protocols, protocol_named
from fedrec.config.schema import check, load
from fedrec.errors import ConfigurationError
from tests.conftest import ROOT, entry

CONFIG = {
    "datasets": ["demo"],
    "protocols": ["clean"],
    "methods": ["fedmf"],
    "paper": "pfedclr",
    "rounds": None,
    "seeds": [0],
    "audit": {"methods": ["fedmf"], "switches": ["pool"], "uploads": []},
    "artefacts": [],
    "paper_datasets": None,
    "diverged": "refused",
    "quick_rounds": 1,
    "demo_rounds": 1,
    "gpu_per_run": 0,
    "gpu_costs": {"start": 1.0, "round": 0.01, "noise": 1.0, "million": {"fedmf": 0.1}, "tables": {}},
    "method_file": "d",
    "paper_folder": "e",
    "claim_file": "f",
    "tuning_file": "f",
    "found_file": "f",
    "catalogue": "a",
    "protocol_file": "b",
    "results": "c",
    "mirror": None,
}


def message(call, *arguments):
    with pytest.raises(ConfigurationError) as error:
        call(*arguments)
    return str(error.value)


@pytest.mark.parametrize("name", ["claims", "config", "datasets", "found", "methods", "protocols", "tuning"])
def test_the_projects_own_files_fit_their_schemas(name):
    load(ROOT / f"config/{name}.yaml", name)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"dataset": ["demo"]},
            ["configuration, dataset: unknown key 'dataset'", "Did you mean 'datasets'?"],
        ),
        (
            {"datasets": "demo"},
            ["datasets: must be a list, got 'demo' (text)", "for example [filmtrust"],
        ),
        ({"datasets": []}, ["datasets", "the datasets to build"]),
        ({"mirror": 3}, ["mirror: must be text or null, got 3 (integer)"]),
        ({"diverged": "keep"}, ["diverged: 'keep' (text) is not allowed. Did you mean 'kept'?"]),
    ],
)
def test_a_mistake_in_the_configuration_names_the_key_and_the_cure(change, said):
    text = message(check, Document("configuration", CONFIG | change), "config")
    assert all(part in text for part in said), text


PLUGIN = {"title": "Made", "paper": "plgc", "settings": {}, "backbones": {"fedmf": "as printed"}}


def test_a_plug_in_fits_the_schema_of_methods():
    refused = PLUGIN | {"refused": {"local-only": "it shares nothing"}}
    check(Document("methods", {"+plgc": PLUGIN, "+em": refused}), "methods")


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"+plgc": PLUGIN | {"backbones": {}}}, "the methods it goes with and how it applies to each"),
        ({"+plgc": PLUGIN | {"backbones": ["fedmf"]}}, "+plgc.backbones: must be keys and values"),
        (
            {"+plgc": PLUGIN | {"backbones": {"fedmf": None}}},
            "must be text, got nothing. Expected: one short sentence.",
        ),
        ({"+plgc": PLUGIN | {"backbone": {}}}, "unknown key 'backbone'. Did you mean 'backbones'?"),
        ({"plgc": PLUGIN}, "plgc.backbones: unknown key 'backbones'"),
        (
            {"+plgc": {key: PLUGIN[key] for key in ("title", "paper", "settings")}},
            "key 'backbones' is missing",
        ),
        ({"++plgc": PLUGIN}, "or + and a plug-in's, that of its file in fedrec/plugins"),
    ],
)
def test_a_mistake_in_a_plug_in_is_reported(entries, said):
    assert said in message(check, Document("methods", entries), "methods")


@pytest.mark.parametrize("text", ["d=", "d,e", "d/e", "d]"])
def test_what_cannot_be_spelt_in_brackets_is_no_setting_and_no_choice(text):
    setting = {"meaning": "made", "type": "choice", "choices": ["a"], "value": "a", "source": "ours"}
    settings = {text: setting, "merge": setting | {"choices": [text]}}
    said = message(check, Document("methods", {"+plgc": PLUGIN | {"settings": settings}}), "methods")
    assert "a setting's name" in said
    assert "+plgc.settings.merge.choices[0]" in said


def test_a_missing_key_says_what_it_is():
    without = {key: value for key, value in CONFIG.items() if key != "results"}
    text = message(check, Document("configuration", without), "config")
    assert "Add it. Expected: folder for everything produced;" in text


def test_a_typo_in_the_catalogue_gives_file_line_and_key(write_catalogue):
    path = write_catalogue(alpha=entry("alpha.csv", filter={"min_row": 5}))
    text = message(load_catalogue, path)
    line = 1 + path.read_text().splitlines().index("    min_row: 5")
    assert (
        f"{path}, line {line}, alpha.filter.min_row: unknown key 'min_row'. Did you mean 'min_rows'?" in text
    )
    assert text.count("\n") == 0
    assert "is missing" not in text, "one mistake is told once"


def test_a_wrong_choice_lists_the_right_ones(write_catalogue):
    text = message(load_catalogue, write_catalogue(alpha=entry("alpha.csv", time="files")))
    assert (
        "'files' (text) is not allowed. Did you mean 'file'? Write one of: file, first_appearance, " in text
    )


def test_a_key_stands_where_it_is_written_whoever_takes_it_over():
    text = "one: &one\n  a: {b: 1}\n  c: 2\ntwo:\n  <<: *one\n  c: 3\nthree: *one\n"
    document = document_of(text, "file")
    lines = {key: (document.line(key), document.from_anchor(key)) for key in (
        ("one", "a", "b"), ("two", "a", "b"), ("two", "c"), ("three", "c")
    )}  # fmt: skip
    assert lines == {
        ("one", "a", "b"): (2, False),
        ("two", "a", "b"): (2, True),
        ("two", "c"): (6, False),
        ("three", "c"): (3, True),
    }


def test_a_key_written_twice_is_refused(tmp_path):
    path = tmp_path / "config.yaml"
    path.write_text("results: a\nmirror: null\nresults: b\n")
    assert "line 3, results: written twice (first on line 1)" in message(load, path, "config")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: [1", "not valid YAML"),
        ("- 1", "must contain keys and values (`key:"),
        ("", "the file is empty. It must contain keys and values."),
    ],
)
def test_what_is_no_configuration_at_all_is_refused(tmp_path, text, said):
    (tmp_path / "config.yaml").write_text(text)
    assert said in message(load, tmp_path / "config.yaml", "config")


def test_a_missing_file_is_reported(tmp_path):
    assert "no such file" in message(load, tmp_path / "none.yaml", "config")


def test_many_mistakes_are_cut_short():
    wrong = CONFIG | {f"key{number}": 1 for number in range(30)}
    assert message(check, Document("configuration", wrong), "config").endswith("... and 20 more")


def test_an_unknown_protocol_lists_the_known_ones():
    protocols = load_protocols(ROOT / "config/protocols.yaml")
    text = message(protocol_named, protocols, "published-pfedrek")
    assert "Did you mean 'published-pfedrec'?" in text
    assert "clean" in text


def test_neutral_is_clean_with_another_pool_and_a_number_is_another_seed(protocols):
    def differs(name, other):
        one, two = protocols[name].as_dict(), protocols[other].as_dict()
        return {key: one[key] for key in one if one[key] != two[key] and key != "name"}

    assert differs("neutral", "clean") == {"negative_pool": "exclude_train_and_candidates"}
    for rules in ("clean", "neutral"):
        assert [differs(f"{rules}-{seed}", rules) for seed in (1, 2)] == [{"seed": 1}, {"seed": 2}]
        assert {rules_name(f"{rules}-{seed}") for seed in (1, 2)} == {rules_name(rules)} == {rules}
    assert rules_name("published-pfedrec") == "published-pfedrec"


def test_temporal_is_clean_at_one_time_and_others_say_nothing_of_a_cut(protocols):
    temporal = protocols["temporal"]
    assert replace(temporal, name="clean", cut=None) == protocols["clean"]
    assert temporal.as_dict() == protocols["clean"].as_dict() | {"name": "temporal", "cut": 0.8}
    assert [name for name, one in protocols.items() if "cut" in one.as_dict()] == ["temporal"]
    # Stored runs and splits have this text.
    assert protocols["clean"].recipe() == (
        '{"candidate_lists":"separate","candidates":99,"equal_times":"random","name":"clean","negative_pool":'
        '"exclude_train","no_times":"random","rank_ties":"target_mean","ranked_score":"logit",'
        '"repeated_pairs":"drop","round_rule":"best_validation","seed":0}'
    )


def test_a_protocol_with_a_number_may_differ_in_its_seed_alone(tmp_path):
    path = tmp_path / "protocols.yaml"
    text = (ROOT / "config/protocols.yaml").read_text()
    assert "clean-1: {<<: *clean, seed: 1}" in text
    path.write_text(text.replace("clean-1: {<<: *clean, seed: 1}", "clean-1: {<<: *clean, candidates: 9}"))
    assert "clean-1: differs from clean in more than the seed." in message(load_protocols, path)


def test_a_protocol_knows_its_paper(protocols):
    assert protocols["published-fedrap"].paper == "fedrap"
    assert protocols["clean"].paper is None


def test_protocols_state_the_facts_of_the_papers(protocols):
    published = {name: protocol for name, protocol in protocols.items() if protocol.paper}
    assert set(published) == {f"published-{p}" for p in ("pfedclr", "pfedrec", "fedem", "plgc", "fedrap")}
    assert {protocol.negative_pool for protocol in published.values()} == {"exclude_all"}
    assert {protocol.rank_ties for protocol in published.values()} == {"target_last"}
    separate = [name for name, protocol in published.items() if protocol.candidate_lists == "separate"]
    assert separate == ["published-pfedrec"]
    clean = protocols["clean"]
    assert (clean.negative_pool, clean.repeated_pairs, clean.candidate_lists, clean.rank_ties, clean.round_rule) == (
        "exclude_train", "drop", "separate", "target_mean", "best_validation",
    )  # fmt: skip
