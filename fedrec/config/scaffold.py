"""Scaffold a new method or dataset: check its name, and add an entry to a configuration file as text.

The new method or entry works without changes, and its comments say what to change. Comments and lines of the
configuration file stay unchanged. fedrec checks the new text before it writes. It overwrites no file, and
writes either both files or none.
"""

import json
import keyword
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from fedrec.config.catalogue import TableFormat, catalogue_of
from fedrec.config.default_files import file_or_default
from fedrec.config.document import Document, document_of, error_at
from fedrec.config.method_file import read_entries
from fedrec.config.modules import MODULE_FOLDERS, method_names, plugin_names
from fedrec.config.schema import check
from fedrec.config.yaml_text import read_text
from fedrec.errors import ConfigurationError, StorageError
from fedrec.files.atomic import write_text

_TEMPLATE = "template"
"""The method that new ones start from, `fedrec/methods/_template.py`."""
_NAME = re.compile(r"[a-z][a-z0-9]*(-[a-z0-9]+)*")
_LONGEST_NAME = 40
_COPIES = {"site-packages", "dist-packages"}
"""Folders that hold copies of packages, which the next installation replaces."""

_METHOD_ENTRY = """
# Added by `fedrec new method {name}`; docs/add-a-method.md explains every line.
{name}:
  title: {title}  # its name in tables and figures
  # paper: mypaper  # a short name of its paper; without one its runs follow none, unless --paper names one
  settings:
    # What every federated method has (rounds, participation, d, batch_size and so on), with FedMF's values.
    # To change one, write it below with a value of its own; so with settings that this method alone has.
    <<: *federated
    rate:
      meaning: learning rate
      type: number
      range: [0, 1000000000]
      value: 0.01
      source: ours  # or paper, where the paper named above states it; code, where its code does
    item_factor:
      meaning: item tables learn at rate times this
      type: number
      range: [0, 1000000000]
      value: 1.0
      source: ours
    item_scale:
      meaning: whether that is multiplied by the number of items too
      type: choice
      choices: [one, items]
      value: one
      source: ours
"""


def new_method(name: str, methods_file: Path) -> Path:
    """Write a method that trains as it is and its entry in `methods_file`; returns the path of its file."""
    methods_file = file_or_default(methods_file)
    folder = MODULE_FOLDERS["methods"]
    _check_folder(folder, methods_file)
    check_new_name(name)
    file = folder / f"{_stem(name)}.py"
    old = read_text(methods_file)
    _check_free(name, file, methods_file, document_of(old, str(methods_file)).content)
    template = (folder / f"_{_TEMPLATE}.py").read_text(encoding="utf-8")
    title = "".join(part.capitalize() for part in name.split("-"))
    # A class must not take the name of a word that it is written with.
    class_name = f"{title}Method" if re.search(rf"\b{title}\b", template) else title
    new = _with_entry(old, _METHOD_ENTRY.format(name=name, title=title))
    read_entries(_checked(new, name, methods_file, "methods"))
    _write_both(file, template.replace(_TEMPLATE.capitalize(), class_name), methods_file, old, new)
    return file


def new_dataset(
    name: str, catalogue_file: Path, path: Path, format_: TableFormat, remarks: Sequence[str] = ()
) -> None:
    """Write an entry for the file `path` of interactions into `catalogue_file`, with remarks on the format.

    Where there is no `config/datasets.yaml`, the new one starts as the default catalogue. The file `path` is
    not read.
    """
    check_new_name(name)
    source = file_or_default(catalogue_file)
    old = read_text(source)
    if name in document_of(old, str(source)).content:
        raise ConfigurationError(f"{source} already has an entry '{name}'. Edit it, or choose another name.")
    written = _written(path, catalogue_file.absolute().parent.parent)
    new = _with_entry(old, _dataset_entry(name, written, format_, remarks))
    catalogue_of(_checked(new, name, catalogue_file, "datasets"))
    try:
        write_text(catalogue_file.resolve(), new)
    except OSError as error:
        raise StorageError(
            f"{catalogue_file}: cannot be written ({error.strerror}). Nothing was changed."
        ) from error


def _written(path: Path, project: Path) -> str:
    """The path of a file as an entry writes it: from the project's folder, or absolute."""
    absolute = path.absolute()
    inside = absolute.is_relative_to(project)
    written = (absolute.relative_to(project) if inside else absolute).as_posix()
    if re.search(r"[^A-Za-z0-9._/-]", written):
        raise ConfigurationError(
            f"{path}: the path of a raw file may contain letters, digits, dots, hyphens and underscores "
            "only. Rename or move the file."
        )
    return written


def _dataset_entry(name: str, path: str, format_: TableFormat, remarks: Sequence[str]) -> str:
    """An entry as text, whose lines say what they are."""
    columns = "".join(f"        {key}: {_quoted(column)}\n" for key, column in format_.columns.items())
    notes = "".join(f"      # {remark}\n" for remark in remarks)
    ids = "      ids: text  # kept as they are spelled\n" if format_.ids == "text" else ""
    quoted = "      quoted: true  # fields may stand in double quotes\n" if format_.quoted else ""
    since = "  # since 1970" if format_.time.endswith("seconds") else "  # how dates are written"
    unit = f"      time: {format_.time}{since}\n" if "time" in format_.columns else ""
    return (
        f"\n# Added by `fedrec new dataset {name}`; docs/datasets.md explains every key.\n"
        f"{name}:\n"
        f"  title: {name}  # its name in tables\n"
        "  interactions:\n"
        f"    path: {path}  # from the project's top folder, or absolute\n"
        "    format:\n"
        f"      separator: {_quoted(format_.separator)}\n"
        f"      header: {_quoted(format_.header)}  # whether the first line names the columns\n"
        f"{quoted}"
        f"{notes}"
        "      columns:  # user and item are needed, rating and time not; rows rated 0 or less are left out\n"
        f"{columns}{ids}{unit}"
        "  # filter: {min_rows: 5}  # users with fewer rows are left out\n"
        "  # citation, licence, note: texts that tables show\n"
    )


def _quoted(value: object) -> str:
    """A value as YAML: JSON is YAML too."""
    return json.dumps(value, ensure_ascii=False)


def check_new_name(name: str) -> None:
    """Raise `ConfigurationError` unless `name` can name a method or a dataset."""
    if _NAME.fullmatch(name) and len(name) <= _LONGEST_NAME and not keyword.iskeyword(name):
        return
    near = re.sub(r"[^a-z0-9]+", "-", name.lower()).lstrip("-0123456789").rstrip("-")
    hint = f" Did you mean '{near}'?" if near != name and _NAME.fullmatch(near) else ""
    raise ConfigurationError(
        f"'{name}' is not a valid name. Start with a lower-case letter; use lower-case letters, digits and "
        f"single hyphens only, {_LONGEST_NAME} at most, and no Python keyword.{hint}"
    )


def _check_folder(folder: Path, methods_file: Path) -> None:
    """Raise `ConfigurationError` unless a method written to `folder` belongs to the project and lasts."""
    if _COPIES & set(folder.parts):
        raise ConfigurationError(
            f"{folder}: this fedrec is an installed copy, and a method written there would be lost at the "
            "next installation. Clone the repository of the project, and type there: pip install --editable "
            "."
        )
    project = methods_file.absolute().parent.parent / "fedrec" / "methods"
    if project.is_dir() and not project.samefile(folder):
        raise ConfigurationError(
            f"{methods_file} belongs to the project with methods in {project}, but this fedrec is in "
            f"{folder}. Activate the environment of the project, or install it: pip install --editable ."
        )


def _check_free(name: str, file: Path, methods_file: Path, entries: Collection[str]) -> None:
    """Raise `ConfigurationError` if a method or plug-in called `name` exists, completely or in part."""
    has_file, has_entry = name in method_names(), name in entries
    if name in plugin_names() or f"+{name}" in entries:
        raise ConfigurationError(f"'{name}' is a plug-in. Choose another name.")
    if has_file and has_entry:
        raise ConfigurationError(
            f"the method '{name}' exists already, in {file}. Edit it, or choose another name."
        )
    if has_file:
        raise ConfigurationError(
            f"{file} exists already, but {methods_file} has no entry for it. Add the entry "
            "(docs/add-a-method.md shows one), or move the file away and type the command again."
        )
    if has_entry:
        raise ConfigurationError(
            f"{methods_file} has an entry '{name}' already, but {file} is missing. Write the file, or "
            "remove the entry and type the command again."
        )


def _with_entry(text: str, entry: str) -> str:
    """The text of a file with an entry behind all others."""
    end = "\r\n" if "\r\n" in text else "\n"
    return text + ("" if text.endswith("\n") else end) + entry.replace("\n", end)


def _checked(text: str, name: str, path: Path, schema: str) -> Document:
    """The document that the new text of the file `path` holds; it fits the schema."""
    with error_at(f"an entry for '{name}' cannot be added"):
        document = document_of(text, str(path))
        check(document, schema)
    return document


def _write_both(file: Path, code: str, entries: Path, old: str, new: str) -> None:
    """Write a new file and the new text of `entries`; if one write fails, undo the other."""
    entries = entries.resolve()
    try:
        write_text(file, code)
        write_text(entries, new)
    except BaseException as error:
        file.unlink(missing_ok=True)
        if read_text(entries) != old:
            write_text(entries, old)
        if isinstance(error, OSError):
            raise StorageError(
                f"{error.filename or file}: cannot be written ({error.strerror}). Nothing was changed. Make "
                f"{file.parent} (methods) and {entries} (settings) writable."
            ) from error
        raise


def _stem(name: str) -> str:
    return name.replace("-", "_")
