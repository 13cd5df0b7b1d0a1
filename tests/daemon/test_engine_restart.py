"""An engine that ends takes its sessions along, and not the daemon: a new one serves new jobs."""

import os
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dlcpd.contract.messages import Joined
from dlcpd.daemon.engine_slot import (
    FAILING,
    MAX_DELAY,
    EngineCallbacks,
    EngineSlot,
    SlotState,
    delay_after,
)
from dlcpd.daemon.engines import Engines
from tests.daemon.kit import Client, Daemon, configuration, join_all, joins, until


def engines_of(daemon: Daemon) -> list[dict[str, Any]]:
    with daemon.client() as client:
        client.greet()
        engines: list[dict[str, Any]] = client.status()["engines"]
        return engines


def test_its_sessions_end_by_name_and_a_new_engine_serves_new_ones(tmp_path: Path) -> None:
    a = configuration(tmp_path, "host-a", "127.0.0.1")
    b = configuration(tmp_path, "host-b", "127.0.0.2")
    with Daemon(a) as first, Daemon(b) as second:
        with first.client() as here, first.client() as idle, second.client() as there:
            join_all([here, there], "job")
            idle.greet()
            engine = first.engine_pid
            os.kill(engine, signal.SIGKILL)
            text = here.refused("daemon_lost")
            assert text.startswith(
                f"dlcpd on host-a: the engine (process {engine}) was ended by SIGKILL"
            )
            assert here.receive() is None
            assert "SIGKILL" in there.command("PeerGone")["text"]
            assert idle.status()["host"] == "host-a", "a connection without a session stays"
        lost = first.wait_for("engine_lost", code="daemon_lost", engine=0)
        assert "SIGKILL" in lost["text"]
        with first.client() as here, second.client() as there:
            join_all([here, there], "job")
            assert here.command("OpenSession")["job"] == "job"
        first.wait_for("engine_restarted", engine=0, restarts=1)
        [engine_state] = engines_of(first)
        assert (engine_state["state"], engine_state["restarts"]) == ("up", 1)
        assert "SIGKILL" in engine_state["last_end"] and engine_state["pid"] != engine
        assert first.process.poll() is None


def test_an_exit_code_is_named(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon, daemon.client() as client:
        join_all([client], "job")
        client.emit("Exit")
        assert "ended with exit code 3" in client.refused("daemon_lost")


def test_a_join_waits_for_the_engine_that_is_being_started(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon, daemon.client() as client:
        [welcome] = [client.greet()]
        os.kill(daemon.engine_pid, signal.SIGKILL)
        daemon.wait_for("engine_lost")
        [join] = joins("job", [welcome])
        client.send(join)
        client.expect(Joined)


def test_engines_that_end_again_and_again_are_named_and_started_ever_more_slowly(
    tmp_path: Path,
) -> None:
    """No sleep: each loss of the log is followed by the next kill."""
    with Daemon(configuration(tmp_path)) as daemon:
        for lives in range(FAILING):
            os.kill(engines_of(daemon)[0]["pid"], signal.SIGKILL)
            until(lambda n=lives: len(lost(daemon)) > n, "the daemon sees the engine end")  # type: ignore[misc]
            if lives < FAILING - 1:
                until(lambda: engines_of(daemon)[0]["state"] == "up", "a new engine")
        failing = daemon.wait_for("engine_failing", engine=0)
        assert f"ended {FAILING} times at once" in failing["text"]
        with daemon.client() as client:
            [join] = joins("job", [client.greet()])
            if engines_of(daemon)[0]["state"] == "failing":
                client.send(join)
                assert "SIGKILL" in client.refused("daemon_unavailable")
                assert f"ended {FAILING} times" in client.status()["engine"]["error"]
            until(lambda: engines_of(daemon)[0]["state"] == "up", "the next engine")
            client.send(join)
            client.expect(Joined)


def lost(daemon: Daemon) -> list[dict[str, Any]]:
    return [event for event in daemon.events if event["event"] == "engine_lost"]


def test_the_delays_double_and_have_a_bound() -> None:
    assert [delay_after(lives) for lives in range(5)] == [0.0, 0.1, 0.2, 0.4, 0.8]
    assert delay_after(1000) == MAX_DELAY


def _ignore(*_: Any) -> None: ...


class Standing(Engines):
    """Engines in given states, without processes."""

    def __init__(self, *states: SlotState) -> None:
        super().__init__(on_event=_ignore, on_exit=_ignore)
        self._slots = [
            EngineSlot(n, EngineCallbacks(_ignore, _ignore, _ignore)) for n in range(len(states))
        ]
        for slot, state in zip(self._slots, states, strict=True):
            slot.state = state


@pytest.mark.parametrize(
    ("count", "load", "chosen"),
    [
        (0, {}, (0, 1, 2)),
        (1, {}, (0,)),
        (1, {0: 1}, (1,)),
        (2, {0: 2, 1: 2, 2: 1}, (0, 2)),
        (8, {}, (0, 1, 2)),
    ],
)
def test_a_job_gets_the_engines_with_the_fewest_sessions(
    count: int, load: dict[int, int], chosen: tuple[int, ...]
) -> None:
    assert (
        Standing(SlotState.UP, SlotState.STARTING, SlotState.UP).choose(count, Counter(load))
        == chosen
    )


def test_no_job_gets_an_engine_that_fails() -> None:
    assert Standing(SlotState.UP, SlotState.FAILING).choose(0, Counter()) == (0,)
    assert Standing(SlotState.FAILING).choose(1, Counter()) == ()


def test_sessions_of_other_engines_go_on(tmp_path: Path) -> None:
    """Two engines, a job on each: the ranks of a job share one."""
    one = 'engines = 2\nengines_per_job = 1\npaths = [{ address = "127.0.0.1" }]\n'
    config = configuration(tmp_path, more=f"[network]\n{one}")
    with (
        Daemon(config) as daemon,
        daemon.client() as left,
        daemon.client() as right,
        daemon.client() as beside,
    ):
        join_all([left, beside], "left")
        join_all([right], "right")
        first, second = (engine["pid"] for engine in engines_of(daemon))
        os.kill(first, signal.SIGKILL)
        for client in (left, beside):
            assert f"process {first}" in client.refused("daemon_lost")
        assert serves(right)
        assert [e["pid"] for e in engines_of(daemon)][1] == second


def serves(client: Client) -> bool:
    """Whether a session's engine still does what its client asks."""
    assert client.lane
    client.emit("Echo")
    return b"Echo" in client.lane.recv(1 << 20) or serves(client)
