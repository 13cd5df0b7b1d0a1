"""switchcfg and a gNMI target: real gRPC, TLS on both sides."""

import json
import os
import signal
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from switchcfg.drivers.gnmi import _tree
from switchcfg.errors import BadState
from tests.switches import clock
from tests.switches.certificates import certificate
from tests.switches.ssh_switch import until
from tests.switches.tls_switch import TlsSwitch

TARGET = Path(__file__).with_name("gnmi_target.py")
THEIRS = {"queues": {"queue": [{"name": "theirs", "config": {"name": "theirs", "queue-id": 7}}]}}


class GnmiSwitch(TlsSwitch):
    platform, ports, kind = "openconfig", "eth", "GNMI"

    def __init__(self, folder: Path) -> None:
        (folder / "tree.json").write_text(json.dumps({"qos": THEIRS}))
        super().__init__(folder, (str(TARGET),))
        for name, file in (("CERT", "client.pem"), ("KEY", "client.key")):
            self.environment[f"SWITCHCFG_GNMI_{name}"] = str(folder / file)
        (folder / "bin").mkdir()
        clock.make_sleep(folder)  # this host waits for the device
        self.environment["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"

    def tree(self) -> Any:
        return json.loads((self.folder / "tree.json").read_text())

    @property
    def pending(self) -> Path:
        return self.folder / "state" / "switchcfg" / "pending" / "leaf1"

    def end(self) -> None:
        super().end()
        if (self.pending / "timer").exists():
            with suppress(ProcessLookupError):  # it has ended by itself
                os.killpg(int((self.pending / "timer").read_text()), signal.SIGKILL)


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[GnmiSwitch]:
    made = GnmiSwitch(tmp_path)
    yield made
    made.end()


def canonical(tree: Any) -> Any:
    """Lists of entries are sets to a device."""
    if isinstance(tree, dict):
        inner = {name: canonical(value) for name, value in tree.items()}
        return {name: value for name, value in inner.items() if value not in ({}, [])}
    if isinstance(tree, list):
        return sorted((canonical(each) for each in tree), key=str)
    return tree


def test_it_is_applied_verified_and_rolled_back(switch: GnmiSwitch) -> None:
    before = switch.tree()
    assert switch.run("doctor", "INTENT") == (0, "leaf1: ready\n")
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said
    assert "degraded: revert: gNMI has no commit that reverts" in said
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("drift", "INTENT")[0] == 0
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 0, said
    assert "No changes" in said
    queues = switch.tree()["qos"]["queues"]["queue"]
    assert THEIRS["queues"]["queue"][0] in queues
    code, said = switch.run("rollback", "INTENT", "--device", "leaf1")
    assert code == 0, said
    assert canonical(switch.tree()["qos"]["queues"]) == canonical(before["qos"]["queues"])
    assert canonical(switch.tree()) == canonical(before)


def test_a_removal_leaves_nothing_on_the_device(switch: GnmiSwitch) -> None:
    before = switch.tree()
    assert switch.run("plan", "INTENT", "--out", "PLANS")[0] == 2
    assert switch.run("apply", "INTENT", "PLANS")[0] == 0
    switch.remove()
    assert canonical(switch.tree()) == canonical(before)


@pytest.mark.parametrize("pieces", [2, 3])
def test_an_answer_in_pieces_is_not_taken_for_the_whole(pieces: int) -> None:
    update = {"path": "qos/queues", "val": {"queue": []}}
    with pytest.raises(BadState, match=f"in {pieces} pieces"):
        _tree({"notification": [{"update": [update] * (pieces - 1)}, {"update": [update]}]})
    assert _tree({"notification": []}) == {}


@pytest.mark.parametrize("killed", [False, True])
def test_what_nobody_confirms_reverts_by_itself(switch: GnmiSwitch, killed: bool) -> None:
    switch.run("plan", "INTENT", "--out", "PLANS")
    if killed:
        switch.delay(1.0)
        child = switch.start("apply", "INTENT", "PLANS")
        until((switch.pending / "armed").exists)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    else:
        assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
        assert "DLCP" in json.dumps(switch.tree())
        code, said = switch.run("apply", "INTENT", "PLANS")
        assert code == 1
        assert "[busy]" in said
    until(lambda: not switch.pending.exists(), meanwhile=switch.later)
    assert "DLCP" not in json.dumps(switch.tree())


def test_a_server_that_the_ca_did_not_sign_is_refused(switch: GnmiSwitch, tmp_path: Path) -> None:
    certificate(tmp_path, "other")
    switch.environment |= {"SWITCHCFG_GNMI_CA": str(tmp_path / "other.pem")}
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "[unreachable]" in said
    assert "Traceback" not in said


def test_without_a_ca_it_says_what_is_missing(switch: GnmiSwitch) -> None:
    del switch.environment["SWITCHCFG_GNMI_CA"]
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "SWITCHCFG_GNMI_CA is not set" in said


def test_a_device_that_is_gone_is_one_error(switch: GnmiSwitch) -> None:
    switch.child.kill()
    switch.child.wait()
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert said.count("[unreachable]") == 1
    assert "Traceback" not in said
