"""Arrival times: late by what the host was busy with, never early."""

import time

import numpy as np
import pytest

from dlcpd.io.udp import receive_ring


class Preempted:
    """Clocks that run on for two milliseconds after every look at them."""

    def __init__(self) -> None:
        self.passed = 0

    def _look(self) -> int:
        self.passed += 2_000_000
        return self.passed - 2_000_000

    def monotonic(self) -> float:
        return 1000.0 + self._look() * 1e-9

    def time_ns(self) -> int:
        return 1_700_000_000 * 10**9 + self._look()


def test_a_preemption_between_the_clocks_makes_nothing_look_early(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clocks = Preempted()
    monkeypatch.setattr(time, "monotonic", clocks.monotonic)
    monkeypatch.setattr(time, "time_ns", clocks.time_ns)
    control = np.zeros((1, 64), np.int32)
    stamp = [1_699_999_999, 0, 999_000_000, 0]  # a millisecond before the first look
    control[0, receive_ring.STAMP] = stamp
    arrived_at = receive_ring.Stamps(control)[0]
    assert 1000.0 - 1e-3 <= arrived_at < 1000.0 + 3e-3
