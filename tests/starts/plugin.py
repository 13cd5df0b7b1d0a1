"""A plugin of pytest, see tests/conftest.py: tests start programs by `forking`."""

import pytest

from tests.starts.forking import FORKING


def pytest_configure() -> None:
    FORKING.serve()


def pytest_runtest_setup(item: pytest.Item) -> None:
    FORKING.enabled = item.get_closest_marker("executed") is None


def pytest_unconfigure() -> None:
    FORKING.close()
