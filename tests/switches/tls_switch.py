"""A device on this host that speaks TLS, and its operator."""

import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.switches import clock
from tests.switches.certificates import certificate
from tests.switches.ssh_switch import until

INTENT = """\
schema = 1
[fabric]
name = "lab"
[[device]]
name = "leaf1"
platform = "PLATFORM"
address = "127.0.0.1:PORT"
[[device.ports]]
names = ["PREFIX1", "PREFIX2"]
rate = "100Gbit"
"""
LOSSLESS = """\
[[lossless]]
name = "roce"
priority = 3
dscp = [24]
share = 60
"""


class TlsSwitch:
    """`target` is a program FOLDER PORT that creates FOLDER/ready once it listens.

    Of each kind: what its platform is called, its ports begin with, and the environment variables
    of who logs in are called after.
    """

    platform: str
    ports: str
    kind: str

    def __init__(self, folder: Path, target: tuple[str, ...]) -> None:
        self.folder = folder
        ca = certificate(folder, "ca")
        for name in ("server", "client"):
            certificate(folder, name, ca)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        text = INTENT.replace("PLATFORM", self.platform).replace("PREFIX", self.ports)
        (folder / "intent.toml").write_text(text.replace("PORT", str(self.port)))
        self.delay(0.0)
        argv = (sys.executable, *target, str(folder), str(self.port))
        self.child = subprocess.Popen(argv, cwd=Path(__file__).parents[2])
        until((folder / "ready").exists)
        self.environment = {
            **os.environ,
            "XDG_STATE_HOME": str(folder / "state"),
            f"SWITCHCFG_{self.kind}_CA": str(folder / "ca.pem"),
        }

    def delay(self, seconds: float) -> None:
        """What a change takes from now on."""
        (self.folder / "delay").write_text(str(seconds))

    def start(self, *words: str) -> "subprocess.Popen[str]":
        """Run switchcfg. INTENT and the like are filled in."""
        fill = {"INTENT": str(self.folder / "intent.toml"), "PLANS": str(self.folder / "plans")}
        argv = (sys.executable, "-m", "switchcfg", *(fill.get(w, w) for w in words))
        return subprocess.Popen(
            argv, env=self.environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )

    def run(self, *words: str) -> tuple[int, str]:
        """(exit code, everything it printed)."""
        child = self.start(*words)
        out, err = child.communicate(timeout=60)
        return child.returncode, out + err

    def want_lossless(self) -> None:
        """From now on the intent has a lossless class, too."""
        with (self.folder / "intent.toml").open("a") as intent:
            intent.write(LOSSLESS)

    def remove(self) -> None:
        """All that is ours, as an operator does."""
        code, said = self.run("plan", "INTENT", "--remove", "--out", "PLANS")
        assert code == 2, said
        code, said = self.run("apply", "INTENT", "PLANS")
        assert code == 0, said

    def later(self, seconds: float = 120) -> None:
        """So many seconds pass on the device: all, for a change that nobody confirmed."""
        clock.later(self.folder, seconds)

    def end(self) -> None:
        self.child.kill()
        self.child.wait()
