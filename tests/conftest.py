"""Rules that hold for every test: one hypothesis profile, and the skip of `netns` by name."""

import gc
import os
import signal

import pytest
from hypothesis import HealthCheck, settings

from dlcp_lab.emulation import unavailable

# Ranks on this machine stand for hosts: each has a daemon of its own, and the network between them.
# What sharing one is like, tests/client/test_sharing.py shows.
os.environ.setdefault("DLCPD_SHARE", "0")

pytest_plugins = ["tests.checks", "tests.kinds", "tests.standing", "tests.starts.plugin"]

# Derandomised: the same commit draws the same examples, so a red run is a real change.
# No deadline per example or draw: the two cores may be shared.
SHARED = [HealthCheck.too_slow]
settings.register_profile("dlcpd", derandomize=True, deadline=None, suppress_health_check=SHARED)
settings.load_profile("dlcpd")


def pytest_configure() -> None:
    # A shell that runs tests in the background has them ignore SIGINT, and so would their children.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    gc.disable()  # the objects that pytest collects stay: garbage collections would free none


def pytest_collection_finish() -> None:
    gc.freeze()  # garbage collections of tests skip those objects
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    reason = unavailable()
    if not reason:
        return
    for item in items:
        if item.get_closest_marker("netns"):
            item.add_marker(pytest.mark.skip(reason=f"netns: {reason}"))
