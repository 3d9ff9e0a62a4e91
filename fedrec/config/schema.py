"""Documents checked against closed JSON schemas.

Schemas are in `fedrec/config/schemas`. Each is closed: a misspelt key is an error, not a default. Training
reads documents without schemas, so that its machines need no jsonschema.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import jsonschema

from fedrec.config.document import (
    Document,
    KeyPath,
    Mistake,
    cut_short,
    document_of,
    hint_of,
    misnamed,
    quoted_value,
    refuse,
    schema_named,
)
from fedrec.config.yaml_text import read_text
from fedrec.errors import did_you_mean

_KINDS = {
    "string": "text",
    "boolean": "true or false",
    "integer": "a whole number",
    "number": "a number",
    "array": "a list",
    "object": "keys and values",
    "null": "null",
}
"""What the types of a schema are called in messages."""
_FITTING: set[tuple[str, str]] = set()
"""Cache of texts that fit a schema, with its name: they need not be checked again."""


def load(path: Path, schema: str) -> Document:
    """Read the YAML file `path` and check it against the schema called `schema`."""
    text = read_text(path)
    document = document_of(text, str(path))
    if (text, schema) not in _FITTING:
        check(document, schema)
        _FITTING.add((text, schema))
    return document


def check(document: Document, schema: str) -> None:
    """Raise `ConfigurationError`, listing what is wrong, unless `document` fits the schema."""
    validator = jsonschema.Draft202012Validator(schema_named(schema))
    errors = list(validator.iter_errors(document.content))
    refuse(document, [mistake for error in errors for mistake in _mistakes(error)])


def _mistakes(error: jsonschema.ValidationError) -> Iterator[Mistake]:
    """Yield the mistakes behind a schema error; several errors may give the same mistake."""
    key: KeyPath = tuple(error.absolute_path)
    schema: Mapping[str, Any] = error.schema if isinstance(error.schema, dict) else {}
    instance: Any = error.instance
    wanted: Any = error.validator_value
    hint = hint_of(schema)
    match error.validator:
        case "additionalProperties" | "required":
            yield from misnamed(key, instance, schema)
        case "enum":
            allowed = [str(value) for value in wanted]
            yield Mistake(
                key,
                f"{quoted_value(instance)} is not allowed.{did_you_mean(str(instance), allowed)}"
                f" Write one of: {', '.join(allowed)}.{hint}",
            )
        case "type":
            kinds = " or ".join(_KINDS[kind] for kind in (wanted if isinstance(wanted, list) else [wanted]))
            yield Mistake(key, f"must be {kinds}, got {quoted_value(instance)}.{hint}")
        case "uniqueItems":
            twice = next(value for index, value in enumerate(instance) if value in instance[:index])
            indices = [index for index, value in enumerate(instance) if value == twice]
            yield Mistake((*key, indices[1]), f"{quoted_value(twice)} is in the list twice. Keep one.")
        case "minItems" | "minProperties":
            yield Mistake(key, f"has {len(instance)} entries, needs at least {wanted}.{hint}")
        case "maxItems":
            yield Mistake(key, f"has {len(instance)} entries, may have {wanted} at most.{hint}")
        case "minimum" | "maximum":
            bound = "least" if error.validator == "minimum" else "most"
            yield Mistake(key, f"{cut_short(str(instance))} is not allowed: at {bound} {wanted}.{hint}")
        case "minLength":
            yield Mistake(key, f"must not be empty.{hint}")
        case "pattern":
            yield Mistake(key, f"{quoted_value(instance)} does not match {wanted}.{hint}")
        case "anyOf":
            # Report the mistakes of the alternative whose type fits.
            meant = [inner for inner in error.context or () if inner.validator not in ("type", "const")]
            yield from (mistake for inner in meant for mistake in _mistakes(inner))
            if not meant:
                yield Mistake(key, f"{quoted_value(instance)} is not allowed.{hint}")
        case _:
            yield Mistake(key, f"{cut_short(error.message)}.{hint}")
