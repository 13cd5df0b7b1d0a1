"""A switch that speaks eAPI over TLS: JSON-RPC, configuration sessions, commits with a timer.

`python eos_target.py FOLDER PORT`: FOLDER has server.pem and server.key, and delay (seconds until
a commit is answered); what it runs is kept in FOLDER/running, and in FOLDER/startup once it is
saved. It refuses lines that it does not know, where they do not belong or say too much: a session
of which one line is refused is none of the others either. It prints as EOS does: code points of
one class on one line, and no defaults.
"""

import base64
import json
import re
import ssl
import sys
import threading
import time
from dataclasses import dataclass, field
from difflib import unified_diff
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.switchcfg import printed
from tests.switchcfg.cli_device import IN_TURN, Lines, run
from tests.switches import clock

USER, PASSWORD = "admin", "not told"
SHARE = r"(\d\d?|100)"
CURVE = r"minimum-threshold \d+ kbytes maximum-threshold \d+ kbytes"
# Mode -> the lines that belong there. EOS takes a line of an outer mode, and leaves the inner one.
MODES = (
    (
        r"qos map dscp \d+ to traffic-class [0-7]( drop-precedence [0-2])?",
        r"qos map traffic-class [0-7] to tx-queue [0-7]",
        r"qos profile [\w.-]+",
        r"interface [\w/.-]+",
    ),
    (
        r"qos trust (dscp|cos)", r"uc-tx-queue [0-7]", r"service-profile [\w.-]+",
        r"description .*",
        r"priority-flow-control (on|priority [0-7] (no-)?drop)",
    ),
    (
        r"priority strict", IN_TURN, rf"bandwidth percent {SHARE}",
        rf"random-detect ecn {CURVE} max-mark-probability {SHARE} weight \d+",
        rf"random-detect drop drop-precedence [0-2] {CURVE} drop-probability {SHARE} weight \d+",
    ),
)  # fmt: skip
HEADS = (
    ("qos map ", "qos profile ", "interface "),
    ("qos trust", "uc-tx-queue ", "service-profile", "description", "priority-flow-control"),
    ("priority ", IN_TURN, "bandwidth ", "random-detect "),
)  # fmt: skip
OPENING = ("qos profile ", "interface ", "uc-tx-queue ")


TELLS: dict[str, Any] = {
    "show lldp neighbors": {
        "lldpNeighbors": [
            {"port": "Ethernet1", "neighborDevice": "spine1.lab", "neighborPort": "Ethernet7"}
        ]
    },
    "show ip bgp summary vrf all": {
        "vrfs": {"default": {"peers": {"192.0.2.1": {"peerState": "Established"}}}}
    },
    "show ipv6 bgp summary vrf all": {"vrfs": {}},
    "show interfaces": {"interfaces": {"Ethernet1": {"name": "Ethernet1", "mtu": 9214}}},
}
DIFFS = r"show session-config named (\S+) diffs"


class Invalid(Exception):
    """The switch refuses a command."""


@dataclass
class Session:
    """A candidate; with a timer once it is committed."""

    script: str = ""
    timer: threading.Thread | None = None
    until: float = 0.0
    before: str = ""


@dataclass
class Eos:
    folder: Path
    sessions: dict[str, Session] = field(default_factory=dict)
    lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def running(self) -> str:
        return (self.folder / "running").read_text()

    @running.setter
    def running(self, text: str) -> None:
        draft = self.folder / "running.draft"
        draft.write_text(text)
        draft.replace(self.folder / "running")

    def run(self, commands: list[Any]) -> list[Any]:
        """One request: in a session from where it is opened to `end`."""
        said: list[Any] = []
        session: Session | None = None
        typed: list[str] = []
        for each in commands:
            line = each["cmd"] if isinstance(each, dict) else each
            if session is not None and line != "end":
                typed.append(line)
                said.append({})
            elif session is not None:
                session.script += indented(typed)
                tree(self.running, session.script)  # or it is refused here
                session = None
                said.append({})
            elif found := re.fullmatch(r"configure session (\S+)", line):
                session, typed = self.sessions.setdefault(found[1], Session()), []
                said.append({})
            else:
                said.append(self.one(line))
        return said

    def one(self, line: str) -> Any:
        with self.lock:
            if found := re.fullmatch(r"configure session (\S+) commit timer (\S+)", line):
                hours, minutes, seconds = map(int, found[2].split(":"))
                return self.commit(found[1], hours * 3600 + minutes * 60 + seconds)
            if found := re.fullmatch(r"configure session (\S+) (commit|abort)", line):
                return self.ended(found[1], keep=found[2] == "commit")
            return self.told(line)

    def told(self, line: str) -> Any:
        if line == "show version":
            return {"version": "4.32.1F", "uptime": time.monotonic()}
        if line in TELLS:
            return TELLS[line]
        if line == "show running-config":
            return {"output": printed.eos(self.running)}
        if found := re.fullmatch(DIFFS, line):
            return {"output": self.diffs(found[1])}
        if line.startswith("show configuration sessions"):
            return {"sessions": {name: self.state(one) for name, one in self.sessions.items()}}
        if line == "write memory":
            (self.folder / "startup").write_text(self.running)
        elif line not in {"enable", "copy startup-config flash:rollback-0"}:
            raise Invalid(line)
        return {"output": ""}

    def diffs(self, name: str) -> str:
        """As EOS prints it: a unified diff, with three lines around each change."""
        if name not in self.sessions:
            raise Invalid(f"no session {name}")
        now = printed.eos(self.running).splitlines()
        then = printed.eos(tree(self.running, self.sessions[name].script)).splitlines()
        heads = ("system:/running-config", f"session:/{name}-session-config")
        return "\n".join(unified_diff(now, then, *heads, lineterm=""))

    @staticmethod
    def state(session: Session) -> dict[str, Any]:
        if session.timer is None:
            return {"state": "pending"}
        return {"state": "pendingCommitTimer", "commitBy": session.until}

    def commit(self, name: str, seconds: int) -> Any:
        session = self.sessions[name]
        session.before, self.running = self.running, tree(self.running, session.script)
        session.until = clock.now(self.folder) + seconds
        session.timer = threading.Thread(target=self.expire, args=(name, session), daemon=True)
        session.timer.start()
        time.sleep(float((self.folder / "delay").read_text()))
        return {"output": ""}

    def expire(self, name: str, session: Session) -> None:
        """Takes it back when its time has come, unless it has ended by then."""
        while clock.now(self.folder) < session.until:
            time.sleep(0.05)
        with self.lock:
            if self.sessions.get(name) is session:
                self.ended(name, keep=False)

    def ended(self, name: str, *, keep: bool) -> Any:
        if (session := self.sessions.pop(name, None)) is None:
            raise Invalid(f"no session {name}")
        if session.timer is not None:
            if not keep:
                self.running = session.before
        elif keep:
            self.running = tree(self.running, session.script)
        return {"output": ""}


def indented(lines: list[str]) -> str:
    """With each line under the section that it belongs to. Raises: Invalid."""
    out, mode = "", 0
    for line in lines:
        what = line if line == IN_TURN else line.removeprefix("no ")
        at = next((at for at in range(mode, -1, -1) if what.startswith(HEADS[at])), -1)
        if at < 0 or (what == line and not any(re.fullmatch(e, line) for e in MODES[at])):
            raise Invalid(line)
        out += f"{' ' * 3 * at}{line}\n"
        mode = at + line.startswith(OPENING)
    return out


def tree(running: str, script: str) -> str:
    """What is there, changed. Raises: Invalid."""
    root = Lines()
    run(root, running)
    try:
        run(root, script)
    except AssertionError as exc:
        raise Invalid(str(exc)) from exc
    return root.text()


def handler(switch: Eos) -> type[BaseHTTPRequestHandler]:
    allowed = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Authorization") != allowed:
                self.answer(401, b"Unauthorized")
                return
            request = json.loads(body)
            answer: dict[str, Any] = {"jsonrpc": "2.0", "id": request["id"]}
            try:
                answer["result"] = switch.run(request["params"]["cmds"])
            except Invalid as exc:
                said = f"CLI command failed: '{exc}' Invalid input"
                answer["error"] = {"code": 1002, "message": said, "data": [{"errors": [said]}]}
            self.answer(200, json.dumps(answer).encode())

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Handler


def main(folder: Path, port: str) -> None:
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), handler(Eos(folder)))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    (folder / "ready").touch()
    server.serve_forever()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
