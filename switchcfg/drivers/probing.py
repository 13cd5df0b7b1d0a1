"""Runs the traffic probe on two hosts, over SSH. Needs the extra `ssh` (asyncssh)."""

import asyncio
import json
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import asyncssh

from switchcfg.drivers.ssh import connect
from switchcfg.errors import CommitFailed, Unreachable
from switchcfg.intent.classes import TrafficClass
from switchcfg.traffic import probe
from switchcfg.traffic.judge import ECT0, LOAD, NOT_ECT, TAGS, Verdict, judge, points

PORT: Final = 33_700  # of UDP; above what traceroute uses
TAG_SECONDS: Final = 1.0
TAG_RATE: Final = 500_000  # bit/s of small datagrams: too few to fill a queue
SPARE: Final = 20.0  # seconds that the receiver listens beyond all phases if END is lost
END_SECONDS: Final = 0.2
SOURCE_PORTS: Final = 32
SCRIPT: Final = Path(probe.__file__).read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Between:
    """Two hosts by their SSH names, and the second one's address on the fabric."""

    sender: str
    receiver: str
    address: str
    load: int = 0  # bit/s, above what the path carries; 0: no load
    seconds: float = 3.0  # of load


async def verdict(
    classes: Sequence[TrafficClass], between: Between, *, config: Path | None
) -> Verdict:
    """How the network between the hosts treats tags. Raises: Unreachable, CommitFailed."""
    lasts = TAG_SECONDS + (between.seconds if between.load else 0) + SPARE
    sender = await _login(between.sender, config)
    async with sender, await _login(between.receiver, config) as receiver:
        counting = asyncio.create_task(_receive(receiver, between, lasts))
        try:
            found = await _measure(classes, between, sender, counting)
        finally:
            counting.cancel()
    return found


async def _login(host: str, config: Path | None) -> asyncssh.SSHClientConnection:
    try:
        return await connect(host, config)
    except (OSError, asyncssh.Error) as exc:
        raise Unreachable(
            f"{host}: {str(exc) or type(exc).__name__}; check that `ssh {host} true` works"
        ) from exc


async def _measure(
    classes: Sequence[TrafficClass], between: Between, sender: Any, counting: "asyncio.Task[Any]"
) -> Verdict:
    await asyncio.sleep(1.0)  # until it listens; the loss of earlier datagrams is harmless
    dscps = [dscp for _, dscp in points(classes)]
    both = [dscp << 2 | ecn for dscp in dscps for ecn in (NOT_ECT, ECT0)]
    to = ("send", between.address, PORT)
    await _probe(sender, between.sender, *to, TAGS, TAG_RATE, TAG_SECONDS, *both)
    sent: dict[int, int] = {}
    if between.load:
        # ECT as dlcpd sends it: the last drop precedence of several is Not-ECT.
        tos = [
            dscp << 2 | (ECT0 if ect else NOT_ECT)
            for each in classes
            for dscp, ect in zip(each.dscp, each.ect, strict=True)
        ]
        load = (LOAD, between.load, between.seconds)
        found = await _probe(sender, between.sender, *to, *load, *tos)
        sent = {int(tos): count for tos, count in found.items()}
    await _probe(sender, between.sender, *to, probe.END, TAG_RATE, END_SECONDS, *both)
    routes = await _probe(sender, between.sender, "trace", between.address, PORT + 1, SOURCE_PORTS)
    counts = {}
    for key, count in (await counting).items():
        phase, was, arrived = map(int, key.split())
        counts[phase, was, arrived] = count
    return judge(classes, sent, counts, _distinct(routes))


def _distinct(routes: Sequence[Sequence[str]]) -> int:
    """The number of distinct routes of full length: a router that did not answer shortens a route
    and must not make another one."""
    longest = max(map(len, routes), default=0)
    return len({tuple(route) for route in routes if len(route) == longest})


async def _receive(connection: Any, between: Between, seconds: float) -> dict[str, int]:
    found: dict[str, int] = await _probe(connection, between.receiver, "receive", PORT, seconds)
    return found


async def _probe(connection: Any, host: str, *words: object) -> Any:
    """Run the probe; returns the last line of its output, which is JSON."""
    command = f"python3 -I - {shlex.join(map(str, words))}"
    try:
        done = await connection.run(command, input=SCRIPT, timeout=300)
    except (OSError, asyncssh.Error) as exc:
        raise Unreachable(f"{host}: {str(exc) or type(exc).__name__}") from exc
    if done.exit_status:
        last = str(done.stderr).strip().rpartition("\n")[2]
        raise CommitFailed(f"{host}: the probe failed: {last}; check that the host has python3")
    return json.loads(str(done.stdout).strip().rpartition("\n")[2])
