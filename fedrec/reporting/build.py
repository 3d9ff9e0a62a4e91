"""From a target to its files: the file of its layout builds it."""

import importlib

from fedrec.errors import ConfigurationError
from fedrec.files.atomic import write_text
from fedrec.plan.layouts import layout_named
from fedrec.plan.project import Project
from fedrec.plan.targets import Target


def build(target: Target, project: Project) -> None:
    """Write all files of a target, its plan among them; what it reads must be there."""
    layout = layout_named(project.layouts, target.layout, target.name)
    module = importlib.import_module(layout.module)
    if not hasattr(module, "build"):
        raise ConfigurationError(f"{layout.module}: a layout needs a function build(target, project).")
    module.build(target, project)
    write_text(project.results / target.plan, target.as_json())
