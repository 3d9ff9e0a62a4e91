"""Puts the files of `config` into a built package, as fedrec's defaults.

An editable installation reads them where they lie.
"""

from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

_SOURCES, _DEFAULTS = Path("config"), Path("fedrec/config/defaults")


class BuildWithDefaults(build_py):
    """Builds the package, and copies the default files into it."""

    def run(self) -> None:
        """Build, and copy."""
        super().run()
        if self.editable_mode:
            return
        for source in sorted(_SOURCES.rglob("*.yaml")):
            target = Path(self.build_lib) / _DEFAULTS / source.relative_to(_SOURCES)
            self.mkpath(str(target.parent))
            self.copy_file(str(source), str(target))


setup(cmdclass={"build_py": BuildWithDefaults})
