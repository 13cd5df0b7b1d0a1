"""A switch like Cumulus Linux: an `nv` of our own behind a real sshd on loopback."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.switches import clock
from tests.switches.ssh_switch import CLIENT, SSHD, make_keys, start_sshd

SCRIPT = Path(__file__).parent / "nvue" / "nv.py"
NAME = "leaf1"
INTENT = """\
schema = 1
[fabric]
name = "lab"
[[device]]
name = "leaf1"
platform = "nvue"
[[device.ports]]
names = ["swp1", "swp2"]
rate = "100Gbit"
"""
THEIRS = ["interface swp1 description theirs", "qos mapping theirs trust l2"]


class NvueSwitch:
    """`folder` has its state: see nvue/nv.py for what changes how it behaves."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "bin").mkdir()
        (folder / "intent.toml").write_text(INTENT)
        first = {"state": "applied", "lines": THEIRS, "before": "1"}
        state = {"revisions": {"1": first}, "applied": "1", "pending": {}}
        (folder / "nvue.json").write_text(json.dumps(state))
        self.release("5.11.0")
        tool = folder / "bin" / "nv"
        tool.write_text(
            f"#!/bin/sh\nexport NVUE_FOLDER={folder}\n"
            f'sleep "$(cat {folder}/delay 2>/dev/null || echo 0)"\n'
            f'exec {sys.executable} -S {SCRIPT} "$@"\n'
        )
        tool.chmod(0o755)
        clock.make_sleep(folder)
        make_keys(folder)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        text = SSHD.format(folder=folder, address="127.0.0.1")
        self.sshd = start_sshd(folder / "sshd", f"{text}Port {port}\n", "")
        host_key = (folder / "host_key.pub").read_text()
        (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {host_key}")
        door = CLIENT.format(folder=folder, device=NAME, address="127.0.0.1")
        (folder / "ssh_config").write_text(f"{door}    Port {port}\n")

    def release(self, number: str) -> None:
        (self.folder / "version").write_text(f"Cumulus Linux {number}")

    def state(self) -> Any:
        return json.loads((self.folder / "nvue.json").read_text())

    def later(self, seconds: float = 120) -> None:
        """So many seconds pass on the switch: all, for a change that nobody confirmed."""
        clock.later(self.folder, seconds)

    def candidates(self) -> dict[str, list[str]]:
        """What users have typed and not applied."""
        found: dict[str, list[str]] = self.state()["pending"]
        return found

    def applied(self) -> list[str]:
        state = self.state()
        return sorted(state["revisions"][state["applied"]]["lines"])

    def startup(self) -> list[str]:
        file = self.folder / "startup"
        return sorted(file.read_text().splitlines()) if file.exists() else []

    def nv(self, *words: str, user: str = "operator") -> str:
        """What somebody else types on the switch."""
        environment = {**os.environ, "NVUE_USER": user}
        argv = (str(self.folder / "bin" / "nv"), *words)
        return subprocess.run(
            argv, env=environment, check=True, capture_output=True, text=True
        ).stdout

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Run switchcfg. INTENT and the like are filled in."""
        fill = {"INTENT": str(self.folder / "intent.toml"), "PLANS": str(self.folder / "plans")}
        argv = (
            sys.executable,
            "-m",
            "switchcfg",
            *(fill.get(w, w) for w in words),
            "--ssh-config",
            str(self.folder / "ssh_config"),
        )
        environment = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}
        return subprocess.Popen(
            argv, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *words: str) -> tuple[int, str]:
        """(exit code, everything it printed)."""
        child = self.start(*words)
        out, err = child.communicate(timeout=120)
        return child.returncode, out + err

    def end(self) -> None:
        self.later(3600)  # or what waits to be taken back goes on waiting
        self.sshd.kill()
        self.sshd.wait()
