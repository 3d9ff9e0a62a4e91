import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedrec.config.names import Composition, folder_name, parse, parse_change, parse_changes, spelling_of
from fedrec.errors import ConfigurationError

NAMES = st.from_regex(r"[a-z0-9]+(-[a-z0-9]+)?", fullmatch=True)
SETTINGS = st.from_regex(r"[a-z][a-z0-9_]*", fullmatch=True)
VALUES = st.from_regex(r"[A-Za-z0-9_.-]+", fullmatch=True)
COMPOSITIONS = st.builds(
    Composition,
    backbone=NAMES,
    plugin=st.none() | NAMES,
    changes=st.dictionaries(SETTINGS, VALUES, max_size=4).map(lambda found: tuple(found.items())),
)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("fedmf", Composition("fedmf")),
        ("local-only", Composition("local-only")),
        ("fedmf+plgc", Composition("fedmf", "plgc")),
        ("pfedclr[rank=4]", Composition("pfedclr", None, (("rank", "4"),))),
        (
            " fedmf + em [ merge = static, weight=0.5 ] ",
            Composition("fedmf", "em", (("merge", "static"), ("weight", "0.5"))),
        ),
        ("fedmf[d=8][rate=0.1]", Composition("fedmf", None, (("d", "8"), ("rate", "0.1")))),
        ("mf[rate=1e+2]", Composition("mf", None, (("rate", "1e+2"),))),
    ],
)
def test_a_spelling_is_taken_apart(text, parts):
    assert parse(text) == parts


@given(COMPOSITIONS)
def test_what_is_spelt_is_read_back_and_can_name_a_folder(composition):
    text = str(composition)
    assert parse(text) == composition
    folder = folder_name(text)
    assert shlex.quote(folder) == folder
    assert spelling_of(folder) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "the backbone is missing"),
        ("+plgc", "the backbone is missing"),
        ("[d=8]", "the backbone is missing"),
        ("fedmf+", "the plug-in after '+' is missing"),
        ("fedmf++plgc", "the plug-in after '+' is missing"),
        ("fedmf+plgc+em", "two plug-ins both replace the item table; use one"),
        ("fedmf[d=8", "its brackets do not match"),
        ("fedmf]", "its brackets do not match"),
        ("fedmf[d=8]]", "its brackets do not match"),
        ("fedmf[[d=8]]", "its brackets do not match"),
        ("fedmf[d=8][rate=1", "its brackets do not match"),
        ("fedmf[d=8][]", "its brackets are empty"),
        ("fedmf[d=8][d=9]", "'d' is set twice"),
        ("fedmf[d=8]+plgc", "'+plgc' follows the brackets, which must come last"),
        ("fedmf[]", "its brackets are empty"),
        ("fedmf[d=8,d=9]", "'d' is set twice"),
    ],
)
def test_what_cannot_be_read_is_refused_with_the_reason(text, said):
    with pytest.raises(ConfigurationError) as error:
        parse(text)
    assert str(error.value).startswith(f"'{text}': {said}. Write backbone+plugin[setting=value]")


@pytest.mark.parametrize(
    ("texts", "said"),
    [
        (["d=32", "d=16"], r"d=32 and d=16 contradict each other. Give d once\."),
        (["rate=1e-3,d=8"], "is more than one setting\\. Give each separately: --set rate=1e-3 --set d=8\\."),
        (["d", "32"], "'d' is not a setting; write name=value, for example d=32."),
    ],
)
def test_each_change_is_given_by_itself_and_once(texts, said):
    assert parse_changes(["d=8", " rate = 0.1 ", "d=8"]) == {"d": "8", "rate": "0.1"}
    with pytest.raises(ConfigurationError, match=said):
        parse_changes(texts)


@pytest.mark.parametrize("text", ["d", "d=", "=8", ""])
def test_a_change_needs_a_name_and_a_value(text):
    for call, given_ in ((parse_change, text), (parse, f"fedmf[rate=1,{text}]")):
        with pytest.raises(
            ConfigurationError, match=f"'{text}' is not a setting; write name=value, for example d=32."
        ):
            call(given_)


def test_a_folder_needs_no_quoting_and_says_what_it_is():
    assert folder_name("fedmf+plgc[beta=0.3][d=8]") == "fedmf+plgc@beta-0.3@d-8"
    # The first dash parts a setting from its value, which may have some itself.
    assert spelling_of("mf@rate-1e-5@decay--0.5") == "mf[rate=1e-5][decay=-0.5]"
    assert shlex.quote(folder_name("fedmf+plgc[beta=0.3]")) == "fedmf+plgc@beta-0.3"


@pytest.mark.parametrize("name", ["fedmf@d", "fedmf@-8", "fedmf@d-", "fedmf@", "fedmf[d=8]@d-8"])
def test_what_names_no_folder_of_a_method_is_refused(name):
    with pytest.raises(ConfigurationError):
        spelling_of(name)
