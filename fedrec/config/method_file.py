"""Reads `config/methods.yaml` and checks its entries: keys, values, ranges, names of each other.

A schema cannot express that a value is in the range of the same setting. Machines that train check no
schemas. So this module makes all checks that settings need, and reads only the allowed keys from the schema.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from fedrec.config.document import Document, KeyPath, Mistake, misnamed, quoted_value, refuse, schema_named
from fedrec.config.method_entries import WORDS, MethodEntry, Setting, SourcedValue, setting_meant
from fedrec.errors import did_you_mean

_PARTS = ("settings", "teaching", "backbones", "refused", "composed")
"""Keys of an entry that hold keys and values."""


def read_entries(document: Document) -> dict[str, MethodEntry]:
    """The entries by name; `ConfigurationError`, with file and line, unless each of them can be used."""
    reader = _Reader()
    settings = {name: reader.settings(name, entry) for name, entry in document.content.items()}
    refuse(document, reader.mistakes)
    entries = {name: reader.entry(name, entry, settings) for name, entry in document.content.items()}
    refuse(document, reader.mistakes)
    return entries


class _Reader:
    """Makes objects of an entry's content, and collects what is wrong with it."""

    def __init__(self) -> None:
        self.mistakes: list[Mistake] = []
        self._schemas: Mapping[str, Any] = schema_named("methods")["$defs"]
        self._read: dict[int, Setting | None] = {}
        """Settings by the identity of their content: an anchor copies nothing."""

    def settings(self, name: str, content: object) -> dict[str, Setting]:
        """The settings of an entry whose own keys are checked as well."""
        entry = self._mapping((name,), content, " (title, settings and others)")
        if entry is None:
            return {}
        is_plugin = name.startswith("+")
        self.mistakes += misnamed((name,), entry, self._schemas["plugin" if is_plugin else "method"])
        parts = [self._mapping((name, part), entry.get(part, {})) for part in _PARTS]
        if None in parts or "settings" not in entry:
            return {}
        if "rounds" not in entry["settings"] and not is_plugin:
            self._report((name, "settings"), "the setting 'rounds' is missing. Every method needs it.")
        sourced = {
            key: self._setting((name, "settings", key), item) for key, item in entry["settings"].items()
        }
        return {key: setting for key, setting in sourced.items() if setting is not None}

    def entry(
        self, name: str, entry: Mapping[str, Any], settings: Mapping[str, Mapping[str, Setting]]
    ) -> MethodEntry:
        """An entry whose keys are right, with the settings of all of them."""
        method_settings = settings[name]
        with_backbones = dict(method_settings)
        for backbone in entry.get("backbones", ()):
            with_backbones |= settings.get(backbone, {})
        for key, value in entry.get("teaching", {}).items():
            if key in with_backbones:
                self._check_value((name, "teaching", key), with_backbones[key], value)
            else:
                self._refuse_unknown_setting((name, "teaching", key), name, with_backbones)
        self._check_backbones(name, entry, [other for other in settings if not other.startswith("+")])
        return MethodEntry(
            name=name,
            title=entry["title"],
            settings=method_settings,
            paper=entry.get("paper"),
            seconds=entry.get("seconds"),
            table_seconds=entry.get("table_seconds", 0.0),
            teaching=entry.get("teaching"),
            reference=entry.get("reference"),
            backbones=entry.get("backbones", {}),
            refused=entry.get("refused", {}),
            composed=self._composed(name, entry, settings),
        )

    def _setting(self, key: KeyPath, content: object) -> Setting | None:
        if id(content) not in self._read:
            self._read[id(content)] = self._new_setting(key, content)
        return self._read[id(content)]

    def _new_setting(self, key: KeyPath, value: object) -> Setting | None:
        schema = self._schemas["setting"]
        content = self._mapping(key, value, f" ({', '.join(schema['required'])} and others)")
        if content is None:
            return None
        wrong = list(misnamed(key, content, schema)) or list(_bound_mistakes(key, content, schema))
        if wrong:
            self.mistakes += wrong
            return None
        is_choice = content["type"] == "choice"
        has_range = not is_choice and content["type"] not in WORDS
        setting = Setting(
            meaning=content["meaning"],
            type=content["type"],
            default=SourcedValue(content["value"], content["source"]),
            origin=str(key[0]),
            range=(content["range"][0], content["range"][1]) if has_range else None,
            choices=tuple(content["choices"]) if is_choice else (),
            nullable=bool(content.get("nullable")),
        )
        self._check_value((*key, "value"), setting, content["value"])
        papers = self._mapping((*key, "papers"), content.get("papers", {})) or {}
        return replace(
            setting, papers=self._sourced_values((*key, "papers"), papers, dict.fromkeys(papers, setting))
        )

    def _differing(
        self, key: KeyPath, name: str, settings: Mapping[str, Setting], value: object
    ) -> dict[str, SourcedValue]:
        """Values by setting: of settings that there are, and that may have them."""
        content = self._mapping(key, value) or {}
        for setting in content:
            if setting not in settings:
                self._refuse_unknown_setting((*key, setting), name, settings)
        return self._sourced_values(key, content, settings)

    def _composed(
        self, name: str, entry: Mapping[str, Any], settings: Mapping[str, Mapping[str, Setting]]
    ) -> dict[str, dict[str, SourcedValue]]:
        """The values with a backbone under a paper: a backbone that it goes with."""
        sourced = {}
        for combination, content in entry.get("composed", {}).items():
            key = (name, "composed", combination)
            backbone, _, paper = str(combination).partition("@")
            if backbone not in entry["backbones"] or not paper:
                hint = did_you_mean(backbone, entry["backbones"])
                self._report(
                    key, f"is not a backbone of {name} with a paper. Write, for example, fedmf@plgc.{hint}"
                )
                continue
            known = {**settings.get(backbone, {}), **settings[name]}
            sourced[combination] = self._differing(key, f"{backbone}{name}", known, content)
        return sourced

    def _sourced_values(
        self, key: KeyPath, content: Mapping[str, object], settings: Mapping[str, Setting]
    ) -> dict[str, SourcedValue]:
        """The values of keys that `settings` knows."""
        sourced = {
            name: self._sourced_value((*key, name), special, settings[name])
            for name, special in content.items()
            if name in settings
        }
        return {name: value for name, value in sourced.items() if value is not None}

    def _sourced_value(self, key: KeyPath, value: object, setting: Setting) -> SourcedValue | None:
        """A value that differs in a paper, and there on datasets."""
        content = self._mapping(key, value, " (value and source)")
        if content is None:
            return None
        wrong = list(misnamed(key, content, self._schemas["special"]))
        self.mistakes += wrong
        datasets = self._mapping((*key, "datasets"), content.get("datasets", {}))
        if wrong or datasets is None:
            return None
        self._check_value((*key, "value"), setting, content["value"])
        for dataset, there in datasets.items():
            self._check_value((*key, "datasets", dataset), setting, there)
        return SourcedValue(content["value"], content["source"], datasets)

    def _mapping(self, key: KeyPath, value: object, keys: str = "") -> dict[str, Any] | None:
        """The value, if it is keys and values; otherwise a mistake, with the `keys` that it should have."""
        if isinstance(value, dict):
            return value
        self._report(key, f"must be keys and values{keys}, got {quoted_value(value)}.")
        return None

    def _check_value(self, key: KeyPath, setting: Setting, value: object) -> None:
        if not setting.allows(value):
            self._report(key, setting.refusal(value))

    def _check_backbones(self, name: str, entry: Mapping[str, Any], known: list[str]) -> None:
        for part in ("backbones", "refused"):
            for backbone in entry.get(part, ()):
                if backbone not in known:
                    hint = did_you_mean(backbone, known)
                    self._report((name, part, backbone), f"unknown method '{backbone}'.{hint}")

    def _refuse_unknown_setting(self, key: KeyPath, name: str, settings: Mapping[str, Setting]) -> None:
        setting = str(key[-1])
        self._report(key, f"{name} has no setting '{setting}'.{setting_meant(setting, settings)}")

    def _report(self, key: KeyPath, text: str) -> None:
        self.mistakes.append(Mistake(key, text))


def _bound_mistakes(key: KeyPath, setting: Mapping[str, Any], schema: Mapping[str, Any]) -> Iterator[Mistake]:
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
            yield Mistake(key, "a setting of type choice needs a list of 'choices'. Add it.")
    elif kind in WORDS:
        if "range" in setting or "choices" in setting:
            yield Mistake(key, f"a setting of type {kind} has neither 'range' nor 'choices'. Remove it.")
    elif not _is_range(setting.get("range")):
        yield Mistake(key, f"a setting of type {kind} needs a 'range': [lowest, highest]. Add it.")


def _is_range(value: object) -> bool:
    numbers = isinstance(value, list) and all(isinstance(part, int | float) for part in value)
    return numbers and len(value) == 2 and value[0] <= value[1]  # type: ignore[arg-type,index]
