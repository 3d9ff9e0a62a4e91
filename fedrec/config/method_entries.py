"""Checks the entries of `config/methods.yaml` one by one: keys, values, ranges, names of each other.

What a schema cannot say (that a value lies in the range beside it) and, on machines that train and check no
schemas, the little that must hold before a setting is read. The schema is only asked which keys there are.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from fedrec.config.document import Document, KeyPath, Mistake, misnamed, quoted_value, refuse, schema_named
from fedrec.errors import did_you_mean

SEARCHED = "searched"
"""The source of a value that a search found (see `fedrec.config.tuning`)."""
_TYPES: Mapping[str, tuple[type, ...]] = {"integer": (int,), "number": (int, float), "integers": (int,)}
"""Python's types of the values, or of the parts of a value, of each type with a range."""


def check_entries(document: Document) -> None:
    """Raise `ConfigurationError`, with file and line, unless every entry can be used."""
    schema = schema_named("methods")["$defs"]
    mistakes: list[Mistake] = []
    looked_at: set[int] = set()
    for name, entry in document.content.items():
        kind = "plugin" if name.startswith("+") else "method"
        mistakes += _of_entry((name,), entry, schema[kind], schema, looked_at)
    if not mistakes:
        for name in document.content:
            mistakes += _of_names(document.content, name)
            mistakes += _of_papers(document.content, name, schema)
            mistakes += _of_composed(document.content, name, schema)
    refuse(document, mistakes)


def is_allowed(setting: Mapping[str, Any], value: object) -> bool:
    """Whether a setting may have a value."""
    if value is None:
        return bool(setting.get("nullable"))
    if setting["type"] == "choice":
        return value in setting["choices"]
    if (setting["type"] == "integers") != isinstance(value, list):
        return False
    low, high = setting["range"]
    return all(
        isinstance(part, _TYPES[setting["type"]]) and not isinstance(part, bool) and low <= part <= high
        for part in (value if isinstance(value, list) else [value])
    )


def allowed_values(setting: Mapping[str, Any]) -> str:
    """What a setting may be, in words."""
    if setting["type"] == "choice":
        return f"one of {', '.join(setting['choices'])}"
    low, high = setting["range"]
    kind = "integers joined by x, each" if setting["type"] == "integers" else setting["type"]
    return f"{kind} from {low:g} to {high:g}" + (" or null" if setting.get("nullable") else "")


def _of_entry(
    key: KeyPath, entry: object, schema: Mapping[str, Any], schemas: Mapping[str, Any], looked_at: set[int]
) -> Iterator[Mistake]:
    if not isinstance(entry, dict):
        yield Mistake(
            key, f"must be keys and values (title, settings and others), got {quoted_value(entry)}."
        )
        return
    yield from misnamed(key, entry, schema)
    settings = entry.get("settings", {})
    for part in ("settings", "teaching", "backbones", "refused", "composed", "papers"):
        if not isinstance(entry.get(part, {}), dict):
            yield Mistake((*key, part), f"must be keys and values, got {quoted_value(entry[part])}.")
            settings = {}
    for name, setting in settings.items():
        # What an anchor shares is the same object in every entry.
        if id(setting) not in looked_at:
            looked_at.add(id(setting))
            yield from _of_setting((*key, "settings", name), setting, schemas)
    if "rounds" not in settings and "settings" in entry and not str(key[0]).startswith("+"):
        yield Mistake((*key, "settings"), "the setting 'rounds' is missing, which every method has.")


def _of_setting(key: KeyPath, setting: object, schemas: Mapping[str, Any]) -> Iterator[Mistake]:
    schema = schemas["setting"]
    if not isinstance(setting, dict):
        keys = ", ".join(schema["required"])
        yield Mistake(key, f"must be keys and values ({keys} and others), got {quoted_value(setting)}.")
        return
    wrong = list(misnamed(key, setting, schema)) or list(_of_bounds(key, setting, schema))
    if wrong:
        yield from wrong
        return
    yield from _of_value((*key, "value"), setting, setting["value"])
    yield from _of_source(key, setting)
    papers = setting.get("papers", {})
    if not isinstance(papers, dict):
        yield Mistake((*key, "papers"), f"must be keys and values, got {quoted_value(papers)}.")
        return
    for paper, special in papers.items():
        yield from _of_special((*key, "papers", paper), setting, special, schemas["special"])


def _of_special(
    key: KeyPath, setting: Mapping[str, Any], special: object, schema: Mapping[str, Any]
) -> Iterator[Mistake]:
    """What differs in a paper, and there on datasets."""
    if not isinstance(special, dict):
        yield Mistake(key, f"must be keys and values (value and source), got {quoted_value(special)}.")
        return
    wrong = list(misnamed(key, special, schema))
    datasets = special.get("datasets", {})
    if not isinstance(datasets, dict):
        wrong.append(Mistake((*key, "datasets"), f"must be keys and values, got {quoted_value(datasets)}."))
    if wrong:
        yield from wrong
        return
    yield from _of_value((*key, "value"), setting, special["value"])
    yield from _of_source(key, special)
    for dataset, value in datasets.items():
        yield from _of_value((*key, "datasets", dataset), setting, value)


def _of_source(key: KeyPath, special: Mapping[str, Any]) -> Iterator[Mistake]:
    """What was searched says in how many trials, and nothing else does."""
    if special["source"] == SEARCHED and "trials" not in special:
        yield Mistake(key, "key 'trials' is missing: in how many trials it was searched.")
    elif special["source"] != SEARCHED and "trials" in special:
        yield Mistake((*key, "trials"), f"goes with source: {SEARCHED}. Take it out, or change the source.")


def _of_bounds(key: KeyPath, setting: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mistake]:
    """A type that there is, and with it the choices or the range."""
    kinds = schema["properties"]["type"]["enum"]
    kind = setting["type"]
    if kind not in kinds:
        hint = did_you_mean(str(kind), kinds)
        yield Mistake(
            (*key, "type"), f"{quoted_value(kind)} is not allowed.{hint} Write one of: {', '.join(kinds)}."
        )
    elif kind == "choice":
        if not isinstance(setting.get("choices"), list) or not setting["choices"]:
            yield Mistake(key, "a setting of type choice has a list of 'choices'. Add it.")
    elif not _is_range(setting.get("range")):
        yield Mistake(key, f"a setting of type {kind} has a 'range': [least, largest]. Add it.")


def _is_range(value: object) -> bool:
    numbers = isinstance(value, list) and all(isinstance(part, int | float) for part in value)
    return numbers and len(value) == 2 and value[0] <= value[1]  # type: ignore[arg-type,index]


def _of_value(key: KeyPath, setting: Mapping[str, Any], value: object) -> Iterator[Mistake]:
    if not is_allowed(setting, value):
        yield Mistake(
            key, f"{quoted_value(value)} is not allowed: {setting['meaning']}; {allowed_values(setting)}."
        )


def _of_names(methods: Mapping[str, Any], name: str) -> Iterator[Mistake]:
    """What an entry says about its own settings and about other entries."""
    entry = methods[name]
    known = [other for other in methods if not other.startswith("+")]
    settings = dict(entry["settings"])
    for backbone in entry.get("backbones", ()):
        settings |= methods.get(backbone, {}).get("settings", {})
    for setting, value in entry.get("teaching", {}).items():
        key = (name, "teaching", setting)
        if setting not in settings:
            yield Mistake(key, f"{name} has no setting '{setting}'.{did_you_mean(setting, settings)}")
        else:
            yield from _of_value(key, settings[setting], value)
    for part in ("backbones", "refused"):
        for backbone in entry.get(part, ()):
            if backbone not in known:
                yield Mistake(
                    (name, part, backbone), f"unknown method '{backbone}'.{did_you_mean(backbone, known)}"
                )


def _of_composed(methods: Mapping[str, Any], name: str, schemas: Mapping[str, Any]) -> Iterator[Mistake]:
    """What differs with a backbone under a paper: a backbone it goes with, and settings that there are."""
    entry = methods[name]
    for composed, specials in entry.get("composed", {}).items():
        key = (name, "composed", composed)
        backbone, _, paper = str(composed).partition("@")
        if backbone not in entry["backbones"] or not paper:
            hint = did_you_mean(backbone, entry["backbones"])
            yield Mistake(key, f"is no backbone of {name} and a paper, as in fedmf@plgc.{hint}")
            continue
        settings = methods.get(backbone, {}).get("settings", {}) | entry["settings"]
        yield from _of_specials(key, f"{backbone}{name}", settings, specials, schemas)


def _of_papers(methods: Mapping[str, Any], name: str, schemas: Mapping[str, Any]) -> Iterator[Mistake]:
    """What differs under papers: settings that there are."""
    entry = methods[name]
    for paper, specials in entry.get("papers", {}).items():
        yield from _of_specials((name, "papers", paper), name, entry["settings"], specials, schemas)


def _of_specials(
    key: KeyPath, name: str, settings: Mapping[str, Any], specials: object, schemas: Mapping[str, Any]
) -> Iterator[Mistake]:
    """Values by setting: of settings that there are, and that may have them."""
    if not isinstance(specials, dict):
        yield Mistake(key, f"must be keys and values, got {quoted_value(specials)}.")
        return
    for setting, special in specials.items():
        if setting not in settings:
            yield Mistake(
                (*key, setting), f"{name} has no setting '{setting}'.{did_you_mean(setting, settings)}"
            )
        else:
            yield from _of_special((*key, setting), settings[setting], special, schemas["special"])
