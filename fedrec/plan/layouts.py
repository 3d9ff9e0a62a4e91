"""Registry of layouts: the declarations of tables, figures and pages, read without importing their files.

A layout is one file below `fedrec/reporting` with the layout's name. It has a literal `LAYOUT = Layout(...)`
and a function `build(target, project)`. A new file there is a new layout; no other file lists them.
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal, get_args

from fedrec.errors import ConfigurationError, did_you_mean

Form = Literal["table", "figure", "page", "search"]
FORMS: tuple[str, ...] = get_args(Form)
NEEDS = ("runs", "states", "splits", "models", "statistics", "interactions", "evaluated")
"""Inputs that a layout may declare: finished runs, their models (`states`), their splits, the code of their
methods (`models`), statistics and interactions of datasets, and records of other systems (`evaluated`)."""
AUDIT = "tables/audit"
"""The folder of tables of the audit, below `FOLDER`."""
FOLDER = Path(__file__).resolve().parents[1] / "reporting"
_FOLDERS = ("figures", "tables", AUDIT, "page")


@dataclass(frozen=True)
class Layout:
    """The declaration of a layout."""

    form: Form
    needs: tuple[str, ...] = ()
    """Its inputs, from `NEEDS`."""
    optional: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Further inputs, by the option of an artefact that requires them."""
    models: tuple[str, ...] = ()
    """Methods whose code it reads, in addition to those of its lines."""
    selection: str | None = None
    """The name of its runs in `fedrec.plan.selection.SELECTIONS`; None for layouts of papers' artefacts."""
    has_rows_of_data: bool = False
    """Whether its csv shows which users have which items: such a file is not stored with the reference."""
    name: str = ""
    """The stem of its file."""
    module: str = ""
    """Its file as a module."""

    def needed(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The inputs of an artefact with these options, in the order of `NEEDS`."""
        extra = (need for key, needs in self.optional.items() if key in options for need in needs)
        wanted = {*self.needs, *extra}
        return tuple(need for need in NEEDS if need in wanted)

    @property
    def of_audit(self) -> bool:
        """Whether its file is in the folder of audit tables."""
        return f".{AUDIT.replace('/', '.')}." in self.module

    @property
    def dataless(self) -> bool:
        """Whether it can be built without any data."""
        return not {*self.needs} - {"models"}


def load_layouts(folder: Path = FOLDER) -> dict[str, Layout]:
    """Every layout declared below a folder, by name."""
    layouts: dict[str, Layout] = {}
    for below in _FOLDERS:
        for path in sorted((folder / below).glob("[!_]*.py")):
            status = path.stat()
            layout = _declared(path, status.st_mtime_ns, status.st_size)
            if layout is None:
                continue
            if path.stem in layouts:
                raise ConfigurationError(f"{path}: another layout has the same name. Rename one file.")
            module = f"fedrec.reporting.{below.replace('/', '.')}.{path.stem}"
            layouts[path.stem] = replace(layout, name=path.stem, module=module)
    return layouts


def layout_named(layouts: Mapping[str, Layout], name: str, where: str) -> Layout:
    """The layout called `name`; `where` names the requester in an error."""
    if name not in layouts:
        raise ConfigurationError(
            f"{where}: unknown layout '{name}'.{did_you_mean(name, layouts)} Known layouts: "
            f"{', '.join(layouts)}."
        )
    return layouts[name]


@cache
def _declared(path: Path, _changed: int, _size: int) -> Layout | None:
    """The layout a file declares, if it declares one."""
    for call in _declarations(ast.parse(path.read_text(encoding="utf-8"))):
        try:
            arguments = [ast.literal_eval(value) for value in call.args]
            options = {str(word.arg): ast.literal_eval(word.value) for word in call.keywords}
            layout = Layout(*arguments, **options)
        except (TypeError, ValueError) as error:
            raise ConfigurationError(
                f"{path}, line {call.lineno}: LAYOUT must be Layout(...) of literals: {error}."
            ) from None
        _check(layout, f"{path}, line {call.lineno}")
        return layout
    return None


def _declarations(tree: ast.Module) -> Iterator[ast.Call]:
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        named = any(isinstance(target, ast.Name) and target.id == "LAYOUT" for target in targets)
        if named and isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield node.value


def _check(layout: Layout, where: str) -> None:
    if layout.form not in FORMS:
        raise ConfigurationError(f"{where}: form '{layout.form}' must be one of {', '.join(FORMS)}.")
    for need in (*layout.needs, *(need for needs in layout.optional.values() for need in needs)):
        if need not in NEEDS:
            raise ConfigurationError(
                f"{where}: unknown need '{need}'.{did_you_mean(need, NEEDS)} Known needs: {', '.join(NEEDS)}."
            )
