"""Names the packages to build: those of `fedrec`, and folders of data; `config` becomes fedrec's defaults."""

from setuptools import find_packages, setup

_DATA = ["fedrec.config.defaults", "fedrec.config.defaults.papers", "fedrec.config.schemas"]

setup(packages=[*find_packages(include=["fedrec*"]), *_DATA])
