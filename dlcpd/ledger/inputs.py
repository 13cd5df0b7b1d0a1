"""Inputs of operations for replay: as recorded, or made again by a user's function."""

import importlib.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlcpd.contract.errors import BadConfig, BadLedger
from dlcpd.core.wire.datagram import Bytes
from dlcpd.ledger.chunks import LedgerChunk
from dlcpd.ledger.generations import input_of
from dlcpd.ledger.reader import Entry, Ledger

# (a rank's ledger, an operation, parts of its tensor that are read) -> tensor, which is written to.
Inputs = Callable[[Ledger, Entry, tuple[LedgerChunk, ...]], Bytes]


@dataclass(frozen=True, slots=True)
class Asked:
    """The operation for which a user's function makes the input."""

    name: str
    step: int  # counts the operations of this name in its group, from 0
    number: int  # of the operation in its group
    group: int
    dtype: str
    bytes: int  # of the tensor


def recorded(ledger: Ledger, entry: Entry, parts: tuple[LedgerChunk, ...]) -> Bytes:
    """The Inputs stored next to the ledger. Raises: BadLedger."""
    tensor = np.zeros(entry.plan.size, np.uint8)
    if not parts:
        return tensor
    what = f"what rank {ledger.rank} contributed to operation {entry.ended.number}"
    file = input_of(ledger.folder, entry.ended)
    if file is None:
        raise BadLedger(
            f"{what} is not in {ledger.folder}: record it ([ledger] inputs = true), or give "
            f"--inputs FILE.py:FUNCTION that makes it again"
        )
    here = tensor[parts[0].start : max(part.stop for part in parts)]
    try:
        values = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as exc:
        raise BadLedger(f"{file}: {what} cannot be read: {exc}") from exc
    here[:] = _bytes(values, len(here), f"{file}: {what}")
    return tensor


def made_by(function: Callable[[int, Asked], Any]) -> Inputs:
    """The Inputs that `function(rank, asked)` makes: arrays of as many bytes as the tensor."""

    def make(ledger: Ledger, entry: Entry, _: tuple[LedgerChunk, ...]) -> Bytes:
        plan, ended = entry
        asked = Asked(plan.name, ended.turn, ended.number, plan.group, plan.dtype, plan.size)
        what = f"what was made for rank {ledger.rank} and operation {ended.number}"
        return _bytes(np.asarray(function(ledger.rank, asked)), plan.size, what).copy()

    return make


def imported(text: str) -> Callable[[int, Asked], Any]:
    """The function that "FILE.py:NAME" names. Raises: BadConfig."""
    path, _, name = text.rpartition(":")
    spec = importlib.util.spec_from_file_location("dlcpd_replay_inputs", path)
    if not path or spec is None or spec.loader is None or not Path(path).is_file():
        raise BadConfig(f"{text!r}: name a function as FILE.py:FUNCTION")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise BadConfig(f"{path} has no function {name!r}")
    return function  # type: ignore[no-any-return]  # getattr gives Any


def _bytes(values: Any, size: int, what: str) -> Bytes:
    raw = np.ascontiguousarray(values).reshape(-1).view(np.uint8)
    if len(raw) != size:
        raise BadLedger(f"{what} has {len(raw)} B, and needs {size}")
    return raw
