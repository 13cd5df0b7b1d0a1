"""Driver for devices with gNMI. Needs the extra `gnmi` (pygnmi).

gNMI has no commit that reverts by itself, so the host that applies runs the auto-revert: a separate
process, which outlives this one, but not the host or its network. `Set` is one transaction.

Credentials come from the environment: see `switchcfg.drivers.login`, kind GNMI.
"""

import asyncio
import json
import logging
import shlex
import socket
import ssl
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Self, TypeVar

import grpc
from pygnmi.client import gNMIclient, gNMIException

from dlcpd import starter
from dlcpd.ipc.held_folder import PRIVATE_FOLDER, HeldFolder
from switchcfg.drivers.auto_revert import AutoRevert, refusal
from switchcfg.drivers.by_auto_revert import ByAutoRevert
from switchcfg.drivers.driver import Commit, Target, host_and_port
from switchcfg.drivers.login import Login, prefix
from switchcfg.drivers.login import login as login_of
from switchcfg.errors import BadState, CommitFailed, SwitchcfgError, Unreachable
from switchcfg.plan.masking import masked

PORT: Final = 9339  # registered with IANA for gNMI
TIMEOUT: Final = 10  # seconds for one call
PATH: Final = "openconfig-qos:qos"
KIND: Final = "GNMI"  # of login
T = TypeVar("T")
logging.getLogger("pygnmi").setLevel(logging.CRITICAL)  # it raises everything that it logs


class GnmiDriver(ByAutoRevert):
    """One device; a channel per call."""

    def __init__(self, device: str, address: str, *, login: Login, folder: Path) -> None:
        """`folder`: for the pending commits of this host."""
        super().__init__(AutoRevert(device, str(folder)))
        self.device, self.address = device, address
        self._login = login

    @classmethod
    def of(cls, target: Target) -> Self:
        return cls(target.name, target.address, login=login_of(KIND), folder=target.pending)

    async def get(self) -> str:
        def ask(client: Any) -> str:
            try:
                answer = client.get(path=[PATH], encoding="json_ietf", datatype="config")
            except gNMIException as exc:
                if _status(exc) == grpc.StatusCode.NOT_FOUND:
                    return "{}"  # no QoS configuration yet
                raise
            try:
                return json.dumps(_tree(answer))
            except BadState as exc:
                raise BadState(f"{self.device}: {exc}") from exc

        return await self._call(ask)

    async def ask(self, question: str) -> str:
        def ask(client: Any) -> str:
            answer = client.get(path=[question], encoding="json_ietf", datatype="all")
            return json.dumps(
                [
                    update["val"]
                    for notification in answer["notification"]
                    for update in notification.get("update") or ()
                ]
            )

        return await self._call(ask)

    async def examine(self) -> Sequence[str]:
        def ask(client: Any) -> list[str]:
            answer = client.capabilities()
            models = {each["name"] for each in answer["supported_models"]}
            found = (
                []
                if "openconfig-qos" in models
                else ["the device does not serve the model openconfig-qos"]
            )
            if "json_ietf" not in answer["supported_encodings"]:
                found.append("the device does not support the encoding JSON_IETF")
            return found

        return await self._call(ask)

    async def save(self) -> str:
        return (
            "gNMI has no request to save: whether the configuration survives a restart depends "
            "on the device"
        )

    async def close(self) -> None:
        """Does nothing: there is no lasting connection."""

    async def _call(self, what: Callable[[Any], T]) -> T:
        return await asyncio.to_thread(call, self.device, self.address, self._login, what)

    async def _carry_out(self, commit: Commit) -> None:
        for step in commit.steps:
            await self._call(partial(_set, payload=step.payload))

    def _restoring(self, restore: str) -> str:
        """A script for this host that sends `restore` as a Set."""
        words = starter.command("switchcfg.drivers.gnmi", self.device, self.address)
        files = {"CA": self._login.ca, "CERT": self._login.cert, "KEY": self._login.key}
        environment = "".join(
            f"export {prefix(KIND)}{name}={shlex.quote(value)}\n" for name, value in files.items()
        )
        return f"unset PYTHONPATH\n{environment}{shlex.join(words)} <<'BODY'\n{restore}\nBODY\n"

    async def _run(self, script: str) -> str:
        """Run an auto-revert script on this host. User and password are inherited, not written.

        The scripts use the folder by its path, so another user must not be able to replace it.

        Raises: UnsafePath, an OSError; the `refusal` of the exit code.
        """
        HeldFolder.open(self._auto_revert.folder, make=PRIVATE_FOLDER).close()
        done = await asyncio.to_thread(
            subprocess.run, ("sh", "-eu"), input=script, text=True, capture_output=True, check=False
        )
        if done.returncode:
            raise refusal(self.device, done.returncode, done.stderr + done.stdout)
        return done.stdout


def call(device: str, address: str, login: Login, what: Callable[[Any], T]) -> T:
    """Call `what` with a client. Raises: Unreachable; CommitFailed if the device refuses."""
    files = (
        {"path_root": login.ca, "path_cert": login.cert, "path_key": login.key}
        if login.cert
        else {"path_cert": login.ca}  # alone it is the root; without it any server is trusted
    )
    target = host_and_port(address, PORT)
    try:
        _greet(target, login)
        with gNMIclient(
            target=target,
            username=login.user,
            password=login.password,
            gnmi_timeout=TIMEOUT,
            **files,
        ) as client:
            return what(client)
    except gNMIException as exc:
        status = _status(exc)
        if status in {
            grpc.StatusCode.INVALID_ARGUMENT,
            grpc.StatusCode.FAILED_PRECONDITION,
            grpc.StatusCode.ABORTED,
        }:
            raise CommitFailed(f"{device}: the device refused: {_said(exc)}") from exc
        raise Unreachable(f"{device} ({address}): {_said(exc)}") from exc
    except (grpc.RpcError, grpc.FutureTimeoutError, OSError) as exc:
        why = str(exc) or f"no answer in {TIMEOUT} s"
        raise Unreachable(f"{device} ({address}): {why}") from exc


def _greet(target: tuple[str, int], login: Login) -> None:
    """One TLS handshake: fails at once with a clear error, where gRPC retries silently."""
    context = ssl.create_default_context(cafile=login.ca)
    context.set_alpn_protocols(["h2"])
    if login.cert:
        context.load_cert_chain(login.cert, login.key)
    with socket.create_connection(target, TIMEOUT) as plain:
        context.wrap_socket(plain, server_hostname=target[0]).close()


def _set(client: Any, payload: str) -> None:
    body = json.loads(payload)
    client.set(delete=body["delete"], update=list(body["update"].items()), encoding="json_ietf")


def _tree(answer: dict[str, Any]) -> dict[str, Any]:
    """{PATH: value}: a device may answer with the value of the path, or with a tree around it.

    Raises: BadState for an answer in pieces: one piece would be taken for the whole value.
    """
    values = [
        update["val"]
        for notification in answer["notification"]
        for update in notification.get("update") or ()
    ]
    if len(values) > 1:
        raise BadState(
            f"it answers a Get of /{PATH} in {len(values)} pieces, which switchcfg does not read"
        )
    return next(
        (each if isinstance(each, dict) and PATH in each else {PATH: each} for each in values), {}
    )


def _status(exc: gNMIException) -> Any:
    code = getattr(exc.orig_exc, "code", None)
    return code() if callable(code) else None


def _said(exc: gNMIException) -> str:
    details = getattr(exc.orig_exc, "details", None)
    return masked(str(details() if callable(details) else exc))


def main(words: Sequence[str]) -> int:
    """Send one Set, for the auto-revert: `switchcfg.drivers.gnmi DEVICE ADDRESS <BODY`."""
    device, address = words
    body = sys.stdin.read()
    try:
        call(device, address, login_of(KIND), lambda client: _set(client, body))
    except SwitchcfgError as exc:
        sys.stderr.write(f"{exc}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
