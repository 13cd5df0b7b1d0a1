"""What a batch holds, whichever data path made it."""

import os
from collections import Counter

import pytest

from dlcpd.core.wire.datagram import Batch
from dlcpd.core.wire.rows import Received, RowGroup
from dlcpd.io.datapath.choices import AUTO, CHOICES, COMPILED, SETTING
from dlcpd.io.datapath.compiled import Compiled, compiled
from dlcpd.io.datapath.library import installed


def datagrams(batch: Batch) -> list[bytes]:
    """All of them, in the order of arrival; strays last."""
    if isinstance(batch, Received):
        rows = zip(batch.index.tolist(), batch.lengths.tolist(), strict=True)
        return [batch.rows[row, :length].tobytes() for row, length in rows] + batch.strays
    out: list[bytes] = []
    for group in batch.groups(Counter()):
        rows_of = group.copy()
        assert isinstance(rows_of, RowGroup)
        lengths = rows_of.lengths.tolist()
        out += [rows_of.rows[i, :n].tobytes() for i, n in enumerate(lengths)]
    return out + batch.strays


def data_path(setting: str) -> Compiled | None:
    """What an engine with this setting would use; skips where it was not built."""
    named = os.environ.get(SETTING, AUTO) not in CHOICES  # by its path, such as a sanitized one
    if setting == COMPILED and installed() is None and not named:
        pytest.skip("no compiled data path: there was no C compiler")
    return compiled(AUTO if setting == COMPILED and named else setting)
