"""Rules that hold for every test: one hypothesis profile, and the skip of `netns` by name."""

import pytest
from hypothesis import settings

from dlcp_lab.emulation import unavailable

# Derandomised: the same commit draws the same examples, so a red run is a real change.
# No deadline per example: the two cores may be shared.
settings.register_profile("dlcpd", derandomize=True, deadline=None)
settings.load_profile("dlcpd")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = unavailable()
    if not reason:
        return
    for item in items:
        if item.get_closest_marker("netns"):
            item.add_marker(pytest.mark.skip(reason=f"netns: {reason}"))
