"""A gNMI target on real gRPC with TLS on both sides: a JSON tree, and Set as one transaction.

`python gnmi_target.py FOLDER PORT`: FOLDER has ca.pem, server.pem and server.key; the tree is
kept in FOLDER/tree.json. It refuses probabilities above 100, as a device with the model would. It
answers as RFC 7951 asks: what stands at the top says its module (section 4), and a leaf-list that
the system orders is in an order of its own.
"""

import json
import sys
import threading
import time
from collections.abc import Iterable
from concurrent import futures
from pathlib import Path
from typing import Any

import grpc
from pygnmi.spec.v080 import gnmi_pb2, gnmi_pb2_grpc

Segment = tuple[str, dict[str, str]]


class Target(gnmi_pb2_grpc.gNMIServicer):  # type: ignore[misc]  # generated, untyped
    def __init__(self, file: Path) -> None:
        self.file, self.lock = file, threading.Lock()

    def Capabilities(self, request: Any, context: Any) -> Any:  # gRPC's name
        return gnmi_pb2.CapabilityResponse(
            supported_models=[gnmi_pb2.ModelData(name="openconfig-qos", version="1.0.0")],
            supported_encodings=[gnmi_pb2.JSON_IETF],
            gNMI_version="0.8.0",
        )

    def Get(self, request: Any, context: Any) -> Any:
        found = []
        for path in request.path:
            value = find(self.read(), segments(request.prefix, path))
            if value is None:
                context.abort(grpc.StatusCode.NOT_FOUND, "nothing there")
            typed = gnmi_pb2.TypedValue(json_ietf_val=json.dumps(said(value)).encode())
            update = gnmi_pb2.Update(path=path, val=typed)
            found.append(gnmi_pb2.Notification(timestamp=time.time_ns(), update=[update]))
        return gnmi_pb2.GetResponse(notification=found)

    def Set(self, request: Any, context: Any) -> Any:
        with self.lock:
            tree = self.read()
            for path in request.delete:
                delete(tree, segments(request.prefix, path))
            for update in request.update:
                value = json.loads(update.val.json_ietf_val)
                if value.get("max-drop-probability-percent", 0) > 100:
                    context.abort(grpc.StatusCode.INVALID_ARGUMENT, "probability out of range")
                merge(find(tree, segments(request.prefix, update.path), make=True), value)
            time.sleep(float((self.file.parent / "delay").read_text()))
            draft = self.file.with_suffix(".draft")
            draft.write_text(json.dumps(tree))
            draft.replace(self.file)
        return gnmi_pb2.SetResponse(timestamp=time.time_ns())

    def read(self) -> Any:
        return json.loads(self.file.read_text())


def said(value: Any) -> Any:
    """A container as a device prints it."""
    ordered = otherwise(value)
    return {f"openconfig-qos:{name}": each for name, each in ordered.items()}


def otherwise(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: otherwise(value[name]) for name in reversed(value)}
    if isinstance(value, list):
        return [otherwise(each) for each in reversed(value)]
    return value


def segments(prefix: Any, path: Any) -> list[Segment]:
    return [(each.name, dict(each.key)) for each in [*prefix.elem, *path.elem]]


def find(at: Any, path: Iterable[Segment], *, make: bool = False) -> Any:
    """What is at a path; None where nothing is, unless it is to be made."""
    for name, keys in path:
        if not make and name not in at:
            return None
        if not keys:
            at = at.setdefault(name, {})
            continue
        rows = at.setdefault(name, [])
        found = next((row for row in rows if matches(row, keys)), None)
        if found is None:
            if not make:
                return None
            found = dict(keys)
            rows.append(found)
        at = found
    return at


def merge(config: dict[str, Any], leaves: dict[str, Any]) -> None:
    """Leaves replace; entries of a leaf-list stand beside those that are there."""
    for name, value in leaves.items():
        have = config.get(name, []) if isinstance(value, list) else []
        config[name] = sorted({*have, *value}) if isinstance(value, list) else value


def delete(tree: Any, path: list[Segment]) -> None:
    *above, (name, keys) = path
    at = find(tree, above)
    if at is None or name not in at:
        return  # the specification: deleting what is not there is no error
    if keys:
        at[name] = [row for row in at[name] if not matches(row, keys)]
    if not keys or not at[name]:
        del at[name]


def matches(row: dict[str, Any], keys: dict[str, str]) -> bool:
    return all(str(row.get(name)) == value for name, value in keys.items())


def main(folder: Path, port: str) -> None:
    file = folder / "tree.json"
    if not file.exists():
        file.write_text("{}")
    pair = ((folder / "server.key").read_bytes(), (folder / "server.pem").read_bytes())
    credentials = grpc.ssl_server_credentials(
        [pair], (folder / "ca.pem").read_bytes(), require_client_auth=True
    )
    server = grpc.server(futures.ThreadPoolExecutor(4))
    gnmi_pb2_grpc.add_gNMIServicer_to_server(Target(file), server)
    server.add_secure_port(f"127.0.0.1:{port}", credentials)
    server.start()
    (folder / "ready").touch()
    server.wait_for_termination()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
