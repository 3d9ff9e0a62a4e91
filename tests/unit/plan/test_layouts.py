"""Layouts declared by files, read without importing them."""

import pytest

from fedrec.errors import ConfigurationError
from fedrec.plan.layouts import FOLDER, Layout, layout_named, load_layouts
from fedrec.plan.selection import SELECTIONS


def made(folder, **files):
    for path, text in files.items():
        file = folder / f"{path.replace('__', '/')}.py"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return load_layouts(folder)


def test_a_layout_is_one_file_and_is_not_imported(tmp_path):
    layouts = made(
        tmp_path,
        figures__waves='raise RuntimeError("imported")\nLAYOUT = Layout("figure", needs=("runs", "states"))\n',
        tables__sizes='LAYOUT = Layout("table", needs=("models",), optional={"users": ("interactions",)})\n',
        tables__audit__traces='LAYOUT = Layout("table", ("runs",), selection="protocol_steps")\n',
        figures__style="COLOURS = ()\n",
        figures___hidden='LAYOUT = Layout("figure")\n',
    )
    assert list(layouts) == ["waves", "sizes", "traces"]
    assert layouts["waves"] == Layout(
        "figure", ("runs", "states"), name="waves", module="fedrec.reporting.figures.waves"
    )
    assert not layouts["waves"].of_audit
    assert layouts["traces"].of_audit
    assert layouts["traces"].module == "fedrec.reporting.tables.audit.traces"
    assert layouts["sizes"].needed({}) == ("models",)
    assert layouts["sizes"].needed({"users": {}}) == ("models", "interactions")
    assert layouts["sizes"].dataless
    assert not layouts["waves"].dataless


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            'NEEDS = ("runs",)\nLAYOUT = Layout("table", NEEDS)\n',
            "line 2: LAYOUT must be Layout(...) of literals",
        ),
        ('LAYOUT = Layout("table", wants=("runs",))\n', "LAYOUT must be Layout(...) of literals"),
        ('LAYOUT = Layout("picture")\n', "form 'picture' must be one of table, figure, page"),
        ('LAYOUT = Layout("table", needs=("run",))\n', "unknown need 'run'. Did you mean 'runs'?"),
    ],
)
def test_a_declaration_that_cannot_be_read_is_named_with_its_line(tmp_path, text, message):
    with pytest.raises(ConfigurationError) as error:
        made(tmp_path, tables__wrong=text)
    assert message in str(error.value)
    assert "wrong.py" in str(error.value)


def test_two_files_of_one_name_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"another layout has the same name\. Rename one file\."):
        made(
            tmp_path, tables__ranks='LAYOUT = Layout("table")\n', figures__ranks='LAYOUT = Layout("figure")\n'
        )


def test_an_unknown_layout_names_the_nearest():
    with pytest.raises(
        ConfigurationError, match=r"pfedclr_fig1: unknown layout 'sweeps'. Did you mean 'sweep'"
    ):
        layout_named({"sweep": Layout("figure")}, "sweeps", "pfedclr_fig1")


def test_every_layout_of_the_package_selects_what_there_is_and_is_in_a_room_of_its_form():
    layouts = load_layouts()
    assert len(layouts) > 20
    for layout in layouts.values():
        assert layout.selection is None or layout.selection in SELECTIONS
        folder = {"table": "tables", "search": "tables", "figure": "figures", "page": "page"}[layout.form]
        assert layout.module.startswith(f"fedrec.reporting.{folder}."), layout
        assert (FOLDER.parents[1] / f"{layout.module.replace('.', '/')}.py").is_file()
