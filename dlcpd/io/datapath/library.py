"""Finds and loads the compiled data path; defines the structs that it shares with Python.

`datapath.h` explains the fields. Sizes are compared when the library is loaded: a library built
from another version is refused.
"""

import ctypes
import os
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import Any, Final

import numpy as np

from dlcpd.contract.errors import BadConfig
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.datapath.choices import AUTO, CHOICES, NUMPY, SETTING

NONE: Final = -1  # no row of the table
MAX_OPERANDS: Final = 64  # of a sum
CONTROL: Final = 128  # bytes of control messages per received message
REJECTS: Final = (
    None, "short", "version", "flags", "path", "segment", "tag", "length", "no_room", "checksum",
    "place",
)  # fmt: skip

HEADER: Final = np.dtype(
    [
        ("version", "u1"),
        ("kind", "u1"),
        ("flags", "u1"),
        ("path", "u1"),
        ("operation", "u4"),
        ("token", "u8"),
        ("stream", "u2"),
        ("transfer", "u2"),
        ("segment", "u2"),
        ("round", "u1"),
        ("tag", "u1"),
        ("number", "u4"),
        ("sent_at", "u4"),
        ("checksum", "u8"),
    ],
    align=True,
)
TRANSFER: Final = np.dtype(
    [
        ("token", "u8"),
        ("operation", "u4"),
        ("stream", "u2"),
        ("transfer", "u2"),
        ("place", "u8"),
        ("received", "u8"),
        ("size", "u4"),
        ("segment_size", "u4"),
        ("segments", "u4"),
        ("missing", "u4"),
        ("least_round", "u4"),
        ("next", "i4"),
        ("sum", "i4"),
        ("generation", "u4"),
        ("operand", "u4"),
        ("open", "u4"),
    ],
    align=True,
)
TABLE: Final = np.dtype(
    [
        ("rows", "u8"),
        ("buckets", "u8"),
        ("sums", "u8"),
        ("mask", "u4"),
        ("size", "u4"),
        ("sum_count", "u4"),
        ("reserved", "u4"),
    ],
    align=True,
)
GROUP: Final = np.dtype(
    [
        ("token", "u8"),
        ("operation", "u4"),
        ("stream", "u2"),
        ("transfer", "u2"),
        ("segment", "u2"),
        ("path", "u1"),
        ("round", "u1"),
        ("tag", "u1"),
        ("first_flags", "u1"),
        ("flags", "u1"),
        ("last_flags", "u1"),
        ("count", "u4"),
        ("bytes", "u4"),
        ("number", "u4"),
        ("sent_at", "u4"),
        ("newest", "u4"),
        ("marked", "u4"),
        ("arrived", "i8"),
        ("row", "i4"),
        ("begin", "u4"),
        ("fresh", "u4"),
        ("duplicate", "u4"),
        ("odd", "u4"),
        ("missing", "u4"),
    ],
    align=True,
)
DATAGRAM: Final = np.dtype([("at", "u4"), ("length", "u4")], align=True)
STRAY: Final = np.dtype([("at", "u4"), ("length", "u4"), ("arrived", "i8")], align=True)
RING: Final = np.dtype(
    [
        ("data", "u8"),
        ("messages", "u8"),
        ("table", "u8"),
        ("keys", "u8"),
        ("groups", "u8"),
        ("waiting", "u8"),
        ("strays", "u8"),
        ("message_count", "u4"),
        ("spacing", "u4"),
        ("group_max", "u4"),
        ("waiting_max", "u4"),
        ("stray_max", "u4"),
        ("budget", "u4"),
        ("longest", "u4"),
        ("loss", "u4"),
        ("corrupt", "u4"),
        ("key_mask", "u4"),
        ("random", "u8"),
        ("fd", "i4"),
        ("error", "i4"),
        ("group_count", "u4"),
        ("waiting_count", "u4"),
        ("stray_count", "u4"),
        ("calls", "u4"),
        ("filled", "u4"),
        ("datagrams", "u4"),
        ("bytes", "u4"),
        ("drained", "u4"),
        ("lost", "u4"),
        ("corrupted", "u4"),
        ("rejects", "u4", (len(REJECTS),)),
        ("wall", "i8"),
        ("now", "i8"),
    ],
    align=True,
)
BATCH: Final = np.dtype(
    [
        ("first", HEADER),
        ("payload", "u8"),
        ("payload_size", "u8"),
        ("segments", "u8"),
        ("tags", "u8"),
        ("flags", "u8"),
        ("name", "u8"),
        ("secret", "u8"),
        ("controls", "u8"),
        ("name_size", "u4"),
        ("control_size", "u4"),
        ("control_spacing", "u4"),
        ("segment_size", "u4"),
        ("count", "u4"),
        ("run", "u4"),
        ("fd", "i4"),
        ("done", "u4"),
        ("calls", "u4"),
        ("error", "i4"),
    ],
    align=True,
)
SUM: Final = np.dtype(
    [
        ("target", "u8"),
        ("here", "u8"),
        ("size", "u4"),
        ("segments", "u4"),
        ("count", "u4"),
        ("divide_by", "u4"),
        ("generation", "u4"),
        ("reserved", "u4"),
        ("operands", "u8", (MAX_OPERANDS,)),
    ],
    align=True,
)
SECRET: Final = np.dtype(
    [("prf", "u8", (2,)), ("nh", "u4", ((32 + MAX_SEGMENT) // 4,))], align=True
)
KEY: Final = np.dtype([("token", "u8"), ("secret", "u8")], align=True)
_STRUCTS: Final = (HEADER, TRANSFER, TABLE, GROUP, DATAGRAM, STRAY, RING, BATCH, SUM, SECRET, KEY)
_FUNCTIONS: Final[dict[str, tuple[Any, list[Any]]]] = {
    "dlcpd_open": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_int32]),
    "dlcpd_close": (ctypes.c_int32, [ctypes.c_void_p, ctypes.c_int32]),
    "dlcpd_add": (
        ctypes.c_int32,
        [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint64, ctypes.c_void_p,
         ctypes.c_uint32],
    ),
    "dlcpd_receive": (None, [ctypes.c_void_p]),
    "dlcpd_digest": (None, [ctypes.c_void_p, ctypes.c_uint32]),
    "dlcpd_place": (None, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_int32]),
    "dlcpd_send": (None, [ctypes.c_void_p]),
    "dlcpd_checksum": (
        ctypes.c_uint64, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_void_p],
    ),
    "dlcpd_nh_rows": (
        None, [ctypes.c_void_p, *[ctypes.c_uint64] * 3, ctypes.c_void_p, ctypes.c_void_p],
    ),
    "dlcpd_message_end": (ctypes.c_uint32, [ctypes.c_void_p, ctypes.c_uint32]),
    "dlcpd_headers": (
        None, [ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p],
    ),
}  # fmt: skip

Library = ctypes.CDLL


def load(path: Path) -> Library:
    """Raises: BadConfig if it is missing, cannot be loaded, or is of another version."""
    try:
        library = ctypes.CDLL(str(path))
        sizes = np.zeros(len(_STRUCTS), np.uint32)
        library.dlcpd_sizes(ctypes.c_void_p(sizes.ctypes.data))
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(library, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError) as exc:
        raise BadConfig(f"cannot load the compiled data path {path}: {exc}") from exc
    if sizes.tolist() != [struct.itemsize for struct in _STRUCTS]:
        raise BadConfig(
            f"the compiled data path {path} is of another version: build it again with "
            f"`pip install .`, or set [network] data_path = {NUMPY!r}"
        )
    return library


def installed() -> Path | None:
    """The path of the library that the build made; None: there was no compiler."""
    candidates = [Path(__file__).with_name("_datapath" + suffix) for suffix in EXTENSION_SUFFIXES]
    return next((path for path in candidates if path.exists()), None)


def choose(setting: str) -> Library | None:
    """The library for `setting`, one of CHOICES; None: numpy does the work.

    With "auto" the environment decides; by default, the library is used if there is one. Raises:
    BadConfig.
    """
    wanted = os.environ.get(SETTING, AUTO) if setting == AUTO else setting
    if wanted == NUMPY:
        return None
    if wanted not in CHOICES:
        return load(Path(wanted))
    path = installed()
    if path is not None:
        return load(path)
    if wanted == AUTO:
        return None
    raise BadConfig(
        "there is no compiled data path: it is built by `pip install` where there is a C "
        f"compiler; set [network] data_path = {AUTO!r} or {NUMPY!r} to use numpy instead"
    )
