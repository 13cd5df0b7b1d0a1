"""Sends, counts and traces UDP datagrams by TOS. Runs on hosts as `python3 -`, read from a pipe.

Standard library only, Python 3.8 and later, no root. One JSON document on standard output.
"""

import json
import select
import socket
import struct
import sys
import time

MAGIC = b"switchcfg"
IP_RECVERR, IP_RECVTOS, IP_MTU_DISCOVER = 11, 13, 10  # linux/in.h; Python does not name them all
ERROR = struct.Struct("=IBBBBII")  # linux/errqueue.h: errno, origin, type, code, pad, info, data
TICK = 0.001  # seconds of traffic at a time
HOP_WAIT = 0.3  # seconds to wait for a router's answer
MOST_HOPS = 8
END = 255  # the phase that ends counting
AFTER_END = 0.5  # seconds to wait for datagrams in flight


def receive(port: int, seconds: float) -> dict[str, int]:
    """Count until the sender ends, or `seconds` are over.

    "PHASE SENT ARRIVED" -> datagrams; SENT and ARRIVED are TOS bytes.
    """
    counts: dict[str, int] = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.setsockopt(socket.IPPROTO_IP, IP_RECVTOS, 1)
        door.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 22)
        door.bind(("", port))
        say("ready")
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            door.settimeout(left)
            try:
                data, ancillary, _, _ = door.recvmsg(2048, 64)
            except socket.timeout:  # noqa: UP041  # an alias since 3.10 only
                break
            if data.startswith(MAGIC) and ancillary:
                phase, sent = data[len(MAGIC) : len(MAGIC) + 2]
                if phase == END:
                    end = min(end, time.monotonic() + AFTER_END)
                    continue
                key = f"{phase} {sent} {ancillary[0][2][0]}"
                counts[key] = counts.get(key, 0) + 1
    return counts


def send(
    to: tuple[str, int], phase: int, rate: float, seconds: float, tos: list[int]
) -> dict[str, int]:
    """Send datagrams with these TOS bytes in rotation, at `rate` bit/s in total.

    TOS -> datagrams sent.
    """
    size = 1400 if phase == 1 else 64  # bytes; outside the load phase, datagrams must not be a load
    sockets = []
    for value in tos:
        door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        door.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, value)
        door.connect(to)
        sockets.append((value, door))
    sent = dict.fromkeys(map(str, tos), 0)
    due = begin = time.monotonic()
    turn = 0
    while (now := time.monotonic()) < begin + seconds:
        due = max(due, now - 10 * TICK)  # no burst after a pause
        while due <= now:
            value, door = sockets[turn % len(sockets)]
            head = MAGIC + bytes((phase, value))
            try:
                door.send(head + bytes(size - len(head)))
                sent[str(value)] += 1
            except OSError:  # the receiver does not listen yet, or this host's queue is full
                pass
            turn += 1
            due += size * 8 / rate
        time.sleep(TICK)
    return sent


def trace(address: str, port: int, ports: int) -> list[list[str]]:
    """The routers on the route from each of `ports` source ports."""
    return [_hops(address, port) for _ in range(ports)]


def _hops(address: str, port: int) -> list[str]:
    """Routers on one source port's route: each TTL from 1 until none answers."""
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as door:
        door.setsockopt(socket.IPPROTO_IP, IP_RECVERR, 1)
        door.connect((address, port))
        for ttl in range(1, MOST_HOPS + 1):
            door.setsockopt(socket.IPPROTO_IP, socket.IP_TTL, ttl)
            try:
                door.send(MAGIC)
            except OSError:  # an ICMP error for an earlier datagram
                door.send(MAGIC)
            who = _answer(door)
            if not who or who == address:
                break
            found.append(who)
    return found


def _answer(door: socket.socket) -> str:
    poll = select.poll()
    poll.register(door, 0)  # POLLERR is always reported
    if not poll.poll(HOP_WAIT * 1000):
        return ""
    try:
        _, ancillary, _, _ = door.recvmsg(256, 512, socket.MSG_ERRQUEUE)
    except OSError:
        return ""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.IPPROTO_IP, IP_RECVERR) and len(data) >= ERROR.size + 8:
            return socket.inet_ntoa(data[ERROR.size + 4 : ERROR.size + 8])
    return ""


def say(what: object) -> None:
    """Print one line of JSON."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def main(role: str, *words: str) -> None:
    """receive PORT SECONDS; send ADDRESS PORT PHASE RATE SECONDS TOS...; trace ADDRESS PORT N."""
    if role == "receive":
        say(receive(int(words[0]), float(words[1])))
    elif role == "send":
        address, port, phase, rate, seconds, *tos = words
        to = (address, int(port))
        say(send(to, int(phase), float(rate), float(seconds), [int(each) for each in tos]))
    else:
        say(trace(words[0], int(words[1]), int(words[2])))


if __name__ == "__main__":
    main(*sys.argv[1:])
