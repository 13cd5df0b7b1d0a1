"""A switch that speaks NX-API over TLS: JSON-RPC, checkpoints, rollback, a scheduler.

`python nxos_target.py FOLDER PORT`: FOLDER has server.pem and server.key, and delay (seconds that a
line of configuration takes). It writes what it runs to FOLDER/running, its scheduler left out, and
to FOLDER/startup what is saved. Each line is in force at once, and a line that it refuses ends a
request and takes nothing back. Files there that change what it does: `ahead` (seconds that its
clock is fast), `denied` (begins of commands that the role may not), `version`, `features`,
`remote` (the user is known by AAA only) and `trusted` (its scheduler knows it all the same),
`held` (jobs wait), `full` (nothing can be saved), `stuck` (rollbacks fail). Written from Cisco's
guides of NX-OS 10.x, not from switchcfg.
"""

import base64
import json
import re
import ssl
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.switchcfg.cli_device import Lines, run
from tests.switches import clock

USER, PASSWORD = "admin", "not told"
CHECKPOINTS = 10
NAME = r"[\w./-]+"
POINTS = r"[\d,-]+"
# What opens a section -> the lines that belong into it. NX-OS takes a line of an outer one.
MODES = {
    "": (
        rf"class-map type qos match-any {NAME}",
        rf"policy-map type (qos|queuing|network-qos) {NAME}",
        r"interface Ethernet\d+/\d+", r"system qos", rf"scheduler job name {NAME}",
        rf"scheduler schedule name {NAME}",
    ),
    "class-map": (rf"match dscp {POINTS}",),
    "policy-map": (rf"class {NAME}", rf"class type (queuing|network-qos) {NAME}"),
    "class": (
        r"set qos-group [0-7]", r"priority level [1-7]", r"bandwidth remaining percent \d+",
        r"random-detect minimum-threshold \d+ bytes maximum-threshold \d+ bytes "
        r"drop-probability \d+ weight \d+( ecn)?",
        r"random-detect non-ecn minimum-threshold \d+ bytes maximum-threshold \d+ bytes "
        r"drop-probability \d+",
        r"random-detect", r"queue-limit \d+ bytes", r"pause pfc-cos [0-7]", r"mtu \d+",
    ),
    "system": (rf"service-policy type network-qos {NAME}",),
    "interface": (
        rf"service-policy type (qos input|queuing output) {NAME}", r"description .+",
        r"priority-flow-control mode (on|off|auto)",
    ),
    "scheduler job": (),
    "scheduler schedule": (rf"job name {NAME}", r"time start \d{4}:\d\d:\d\d:\d\d:\d\d"),
}  # fmt: skip
ORDER = ("class-map", "policy-map", "system", "interface", "scheduler")
DONE = "Rollback completed successfully.\n"


class RefusedError(Exception):
    """What the switch says to a command that it does not take."""


@dataclass
class Checkpoint:
    tree: Lines
    description: str


@dataclass
class Nxos:
    folder: Path
    tree: Lines = field(default_factory=Lines)
    checkpoints: dict[str, Checkpoint] = field(default_factory=dict)
    status: dict[str, str] = field(default_factory=dict)  # of jobs that have run
    lock: threading.RLock = field(default_factory=threading.RLock)

    def __post_init__(self) -> None:
        run(self.tree, (self.folder / "running").read_text())

    def has(self, name: str) -> bool:
        return (self.folder / name).exists()

    def now(self) -> float:
        return clock.now(self.folder)

    def write(self) -> None:
        draft = self.folder / "running.draft"
        text = printed(self.tree, leave_out="scheduler", points=False)
        draft.write_text(text)
        draft.replace(self.folder / "running")

    def request(self, commands: list[str]) -> list[str | RefusedError]:
        """What each says, up to the first that is refused."""
        said: list[str | RefusedError] = []
        typing = Typing(self)
        for command in commands:
            try:
                if self.has("denied") and command.startswith(
                    tuple((self.folder / "denied").read_text().splitlines())
                ):
                    raise RefusedError("% Permission denied for the role\n")
                said.append(typing.line(command))
            except RefusedError as exc:
                return [*said, exc]
        return said

    def executed(self, command: str) -> str:
        """A command of EXEC mode."""
        if found := re.fullmatch(rf"checkpoint ({NAME})(?: description (.*))?", command):
            return self.keep(found[1], found[2] or "None")
        if found := re.fullmatch(rf"no checkpoint ({NAME})", command):
            if self.checkpoints.pop(found[1], None) is None:
                raise RefusedError("ERROR: checkpoint not found\n")
            return ""
        if found := re.fullmatch(rf"rollback running-config checkpoint ({NAME}) atomic", command):
            return self.back(found[1])
        if command == "copy running-config startup-config":
            if self.has("full"):
                return "Copy failed: no space left on device\n"
            (self.folder / "startup").write_text((self.folder / "running").read_text())
            return "[########################################] 100%\nCopy complete.\n"
        if command.startswith("show diff "):
            return self.patch(command.removeprefix("show diff "))
        if command.startswith("show "):
            return self.shown(command.removeprefix("show "))
        if command == "terminal dont-ask":
            return ""
        raise RefusedError("% Invalid command\n")

    def keep(self, name: str, description: str) -> str:
        if name in self.checkpoints or len(self.checkpoints) >= CHECKPOINTS:
            # As NX-OS does for what the command itself finds wrong: in the words of an answer.
            return "ERROR: checkpoint name is in use, or there are too many\n"
        self.checkpoints[name] = Checkpoint(copied(self.tree), description)
        return "...Done\n"

    def back(self, name: str) -> str:
        if name not in self.checkpoints:
            raise RefusedError("ERROR: checkpoint not found\n")
        if self.has("stuck"):
            return "Executing Rollback Patch\nRollback failed: patch could not be applied\n"
        self.tree = copied(self.checkpoints[name].tree)
        self.write()
        return f"Collecting Running-Config\nGenerating Rollback Patch\n{DONE}"

    def shown(self, what: str) -> str:
        scheduler = "scheduler" in self.features()
        match what:
            case "version":
                return f"Software\n  NXOS: version {(self.folder / 'version').read_text()}\n"
            case "clock":
                now = time.gmtime(self.now())
                return f"Time source is NTP\n{time.strftime('%H:%M:%S.123 UTC %a %b %d %Y', now)}\n"
            case "feature":
                rows = ("nxapi", *self.features())
                return "".join(f"{row:<22} 1          enabled\n" for row in rows)
            case "running-config":
                stamp = time.strftime("%a %b %d %H:%M:%S %Y")
                text = printed(self.tree, points=True)
                return f"!Command: show running-config\n!Time: {stamp}.{time.time_ns()}\n\n{text}"
            case "checkpoint summary":
                return self.summary()
            case "user-account":
                how = "account created through REMOTE authentication" if self.has("remote") else ""
                return f"user:{USER}\n\tthis user account has no expiry date\n\t{how}\n"
            case "scheduler config" if scheduler:
                named = f"  scheduler aaa-authentication username {USER} password 7 abc\n"
                known = named if self.has("trusted") else ""
                text = printed(self.tree, only="scheduler")
                return f"config terminal\n  feature scheduler\n{known}end\n{text}"
            case "scheduler schedule" if scheduler:
                return self.schedules()
        raise RefusedError("% Invalid command\n")

    def patch(self, what: str) -> str:
        """The commands that lead from a checkpoint to what runs."""
        found = re.fullmatch(rf"rollback-patch checkpoint ({NAME}) running-config", what)
        if found is None or found[1] not in self.checkpoints:
            raise RefusedError("% Invalid command\n")
        lines = "".join(led(self.checkpoints[found[1]].tree, self.tree, 0))
        patch = f"!!\n!\n{lines}" if lines else "Rollback Patch is Empty\n"
        return f"Collecting Running-Config\n#Generating Rollback Patch\n..\n{patch}"

    def features(self) -> list[str]:
        return (self.folder / "features").read_text().split()

    def summary(self) -> str:
        rows = (
            f"{number}) {name}:\nCreated by {USER}\nCreated at Wed, 07:10:29 25 Nov 2026\n"
            f"Size is 15,568 bytes\nDescription: {one.description}\n"
            for number, (name, one) in enumerate(self.checkpoints.items(), 1)
        )
        return "User Checkpoint Summary\n" + "-" * 80 + "\n" + "\n".join(rows)

    def sections(self, kind: str) -> dict[str, Lines]:
        return {
            line.removeprefix(f"{kind} "): inner
            for line, inner in self.tree.inner.items()
            if line.startswith(f"{kind} ")
        }

    def schedules(self) -> str:
        out = ""
        for name, inner in self.sections("scheduler schedule name").items():
            [job] = [line for line in inner.inner if line.startswith("job name ")]
            job = job.removeprefix("job name ")
            ran = "Yet to be executed" if job not in self.status else "Wed Nov 25 07:40:00 2026"
            out += (
                f"Schedule Name       : {name}\n{'-' * 27}\nUser Name           : {USER}\n"
                f"Schedule Type       : Run once\nLast Execution Time : {ran}\n{'-' * 47}\n"
                f"     Job Name            Last Execution Status\n{'-' * 47}\n"
                f"{job:<30} {self.status.get(job, '-NA-')}\n{'=' * 78}\n"
            )
        return out

    def tick(self) -> None:
        """Run the jobs that are due, once."""
        with self.lock:
            if self.has("held"):
                return
            now = time.strftime("%Y:%m:%d:%H:%M", time.gmtime(self.now()))
            jobs = self.sections("scheduler job name")
            for inner in self.sections("scheduler schedule name").values():
                told = {line.rpartition(" ")[0]: line.rpartition(" ")[2] for line in inner.inner}
                job = told.get("job name", "")
                if job in self.status or told.get("time start", "9") > now or job not in jobs:
                    continue
                said = "".join(map(self.executed, jobs[job].inner))
                self.status[job] = "Success (0)" if DONE in said else "Failed (1)"


class Typing:
    """One request, which begins in EXEC mode."""

    def __init__(self, switch: Nxos) -> None:
        self.switch = switch
        self.configuring = False
        self.path: list[str] = []

    def line(self, command: str) -> str:
        switch = self.switch
        with switch.lock:
            if self.path and self.path[-1].startswith("scheduler job name"):
                return self.job(command)
            if command == "configure terminal":
                self.configuring, self.path = True, []
                return ""
            if command == "end":
                self.configuring, self.path = False, []
                return ""
            if not self.configuring:
                return switch.executed(command)
            time.sleep(float((switch.folder / "delay").read_text()))
            return self.configured(command)

    def job(self, command: str) -> str:
        """Whatever is typed is the job's until it ends."""
        if command == "end-job":
            self.path = []
        else:
            self.type([*self.path, command])
        return ""

    def configured(self, command: str) -> str:
        what = command.removeprefix("no ")
        if command == "no system qos":  # it is always there
            raise RefusedError("% Invalid command\n")
        if what.startswith("scheduler") and "scheduler" not in self.switch.features():
            raise RefusedError("% Invalid command\n")
        for depth in range(len(self.path), -1, -1):
            mode = kind(self.path[:depth])
            if any(re.fullmatch(shape, what) for shape in MODES[mode]):
                if re.fullmatch(r"queue-limit \d\d? bytes", command):
                    # In the words of an answer, as what a feature itself finds wrong.
                    return "ERROR: queue-limit is below the minimum of 100 bytes\n"
                path = [*self.path[:depth], command]
                self.type(path)
                self.path = path if what == command and kind(path) != "line" else path[:-1]
                return ""
        raise RefusedError("% Invalid command\n")

    def type(self, path: list[str]) -> None:
        script = "".join(f"{'  ' * depth}{line}\n" for depth, line in enumerate(path))
        try:
            run(self.switch.tree, script)
        except AssertionError as exc:
            raise RefusedError(f"ERROR: {exc}\n") from exc
        if path[-1].startswith("no scheduler job name "):
            self.switch.status.pop(path[-1].rpartition(" ")[2], None)
        self.switch.write()


def kind(path: list[str]) -> str:
    """Of the mode that a path of sections ends in."""
    if not path:
        return ""
    return next((mode for mode in MODES if mode and path[-1].startswith(f"{mode} ")), "line")


def copied(tree: Lines) -> Lines:
    return Lines({line: copied(inner) for line, inner in tree.inner.items()})


def printed(tree: Lines, *, only: str = "", leave_out: str = "!", points: bool = False) -> str:
    """In the order that NX-OS has, whatever the one in which it was told; two columns a section."""
    rank = {head: at for at, head in enumerate(ORDER)}
    heads = sorted(tree.inner, key=lambda line: rank.get(line.split(" ")[0], len(ORDER)))
    out = ""
    for head in heads:
        if head.startswith(only) and not head.startswith(leave_out):
            out += f"{head}\n{nested(tree.inner[head], 2, points=points)}"
            out += "end-job\n" if head.startswith("scheduler job") else ""
    return out


def led(old: Lines, new: Lines, columns: int) -> Iterator[str]:
    """What goes, with `no` before it; then what comes or changes, under its section."""
    for line in old.inner:
        if line not in new.inner:
            yield f"{' ' * columns}no {line}\n"
    for line, inner in new.inner.items():
        below = list(led(old.inner.get(line, Lines()), inner, columns + 2))
        if below or line not in old.inner:
            yield f"{' ' * columns}{line}\n"
            yield from below


def nested(tree: Lines, columns: int, *, points: bool) -> str:
    return "".join(
        f"{' ' * columns}{ranges(line) if points else line}\n"
        f"{nested(inner, columns + 2, points=points)}"
        for line, inner in tree.inner.items()
    )


def ranges(line: str) -> str:
    """`match dscp 8,9,10,12` as NX-OS prints it."""
    found = re.fullmatch(r"match dscp ([\d,]+)", line)
    if not found:
        return line
    out: list[list[int]] = []
    for number in sorted(map(int, found[1].split(","))):
        if out and out[-1][-1] == number - 1:
            out[-1][1:] = [number]
        else:
            out.append([number])
    return "match dscp " + ",".join("-".join(map(str, each)) for each in out)


# With one neighbour, a row is no list.
TELLS: dict[str, Any] = {
    "show lldp neighbors detail": {
        "TABLE_nbor_detail": {
            "ROW_nbor_detail": {"l_port_id": "Eth1/1", "sys_name": "spine1", "port_id": "Ethernet7"}
        }
    },
    "show bgp sessions vrf all": {
        "TABLE_vrf": {
            "ROW_vrf": {
                "TABLE_neighbor": {
                    "ROW_neighbor": {"neighbor-id": "192.0.2.1", "state": "Established"}
                }
            }
        }
    },
    "show interface": {
        "TABLE_interface": {"ROW_interface": {"interface": "Ethernet1/1", "eth_mtu": "9216"}}
    },
}


def handler(switch: Nxos) -> type[BaseHTTPRequestHandler]:
    allowed = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # http.server's name
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.path != "/ins" or "html" in switch.features():
                self.answer(404, b"<html>no such page</html>")
            elif self.headers.get("Authorization") != allowed:
                self.answer(401, b"Unauthorized")
            else:
                self.told(json.loads(body))

        def told(self, requests: list[dict[str, Any]]) -> None:
            commands = [each["params"]["cmd"] for each in requests]
            if requests[0]["method"] == "cli" and commands[0] in TELLS:  # structured output
                body = {"result": {"body": TELLS[commands[0]]}}
                told = {"jsonrpc": "2.0", "id": requests[0]["id"], **body}
                self.answer(200, json.dumps(told).encode())
                return
            said = switch.request(commands)
            answers = [
                {"jsonrpc": "2.0", "id": each["id"], **one(text)}
                for each, text in zip(requests, said, strict=False)
            ]
            failed = any("error" in each for each in answers)
            whole = answers if len(answers) > 1 else answers[0]
            self.answer(500 if failed else 200, json.dumps(whole).encode())

        def answer(self, code: int, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Nothing."""

    return Handler


def one(said: str | RefusedError) -> dict[str, Any]:
    if isinstance(said, RefusedError):
        return {"error": {"code": -32602, "message": "Invalid params", "data": {"msg": str(said)}}}
    return {"result": {"msg": said} if said else None}


def main(folder: Path, port: str) -> None:
    switch = Nxos(folder)
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), handler(switch))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem", folder / "server.key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=ticking, args=(switch,), daemon=True).start()
    (folder / "ready").touch()
    server.serve_forever()


def ticking(switch: Nxos) -> None:
    while True:
        switch.tick()
        time.sleep(0.05)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
