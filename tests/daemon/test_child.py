"""A child of control: its end is seen whoever reaps it."""

import asyncio
import os
import re
import signal
import subprocess
import threading

import pytest

from dlcpd.daemon.child import NO_MORE, Child


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


def test_a_child_that_no_thread_can_wait_for_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that the next try has the same chance: a limit of processes may be raised meanwhile."""
    started: list[subprocess.Popen[bytes]] = []

    class Kept(subprocess.Popen[bytes]):
        def __init__(self, *args: object, **more: object) -> None:
            super().__init__(*args, **more)  # type: ignore[call-overload]
            started.append(self)

    def full(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    async def run() -> None:
        monkeypatch.setattr(subprocess, "Popen", Kept)
        monkeypatch.setattr(threading.Thread, "start", full)
        with pytest.raises(OSError, match=f"^.Errno 11. {re.escape(NO_MORE)}"):
            Child(["sleep", "600"], {}, [])

    asyncio.run(run())
    assert [process.returncode for process in started] == [-signal.SIGKILL]


def test_a_process_beyond_the_limit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    async def run() -> None:
        monkeypatch.setattr(subprocess, "Popen", full)
        with pytest.raises(OSError, match=f"^.Errno 11. {re.escape(NO_MORE)}"):
            Child(["true"], {}, [])

    asyncio.run(run())
