import pytest


def pytest_collection_modifyitems(items):
    """One worker has all tests of the built project, so that it is built once and not once per worker."""
    for item in items:
        if "built" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("built"))
