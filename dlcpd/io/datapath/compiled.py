"""The compiled data path as an engine holds it: one library and one table for all its paths."""

from typing import NamedTuple

from dlcpd.io.datapath.library import Library, choose
from dlcpd.io.datapath.open_transfers import OpenTransfers


class Compiled(NamedTuple):
    """What a `UdpPath` needs of it."""

    library: Library
    table: OpenTransfers


def compiled(setting: str) -> Compiled | None:
    """What `setting`, one of library.CHOICES, asks for; None: numpy does the work.

    Raises: BadConfig.
    """
    library = choose(setting)
    return None if library is None else Compiled(library, OpenTransfers(library))
