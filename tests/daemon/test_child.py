"""A child of control: its end is seen whoever reaps it."""

import asyncio
import os

import pytest

from dlcpd.daemon.child import Child


def test_a_child_that_kill_has_reaped(monkeypatch: pytest.MonkeyPatch) -> None:
    """`kill` looks whether it still runs, which reaps one that does not."""

    def reaped(*_: object) -> None:
        raise ChildProcessError(10, "No child processes")

    async def run() -> int | None:
        monkeypatch.setattr(os, "waitid", reaped)
        child = Child(["true"], {}, [])
        await asyncio.wait_for(child.wait(), 20.0)
        return child.returncode

    assert asyncio.run(run()) == 0
