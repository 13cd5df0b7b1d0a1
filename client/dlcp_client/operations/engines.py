"""Assigns operations to engines of a host: the same on every rank, without messages."""

from collections import Counter
from typing import Final
from zlib import crc32

from dlcpd.contract.collectives import COLLECTIVES, Shape
from dlcpd.contract.messages import Submit

# Least bytes per engine for a division to pay: of a tensor that is reduced or copied as a whole,
# element by element; and of the data from one rank to another, sent in transfers of 4 MiB.
LEAST_RANGE: Final = 1 << 20
LEAST_TRANSFER: Final = 4 << 20


class Engines:
    """Divides large operations among all engines. Any other goes to one: operations of one name
    always to the same engine, which keeps their residual, the rest in rotation."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._turns = Counter[int]()  # by group: number of operations

    def of(self, ask: Submit, item: int) -> range:
        """The engines for the next operation of a group, on elements of `item` bytes."""
        if self.count == 1:
            return range(1)
        most = max(ask.input_count, ask.output_count) * item
        large = most >= self.count * min(LEAST_RANGE, LEAST_TRANSFER)
        if large and not ask.sizes and self._worth_dividing(ask, item):
            return range(self.count)
        if ask.name:
            one = crc32(ask.name.encode()) % self.count
        elif COLLECTIVES[ask.collective].message:  # a receiver may know only the group
            one = ask.group % self.count
        else:
            one = (ask.group + self._turns[ask.group]) % self.count
        return range(one, one + 1)

    def submitted(self, ask: Submit) -> None:
        """Count a submitted operation."""
        if self.count > 1 and not COLLECTIVES[ask.collective].message:
            self._turns[ask.group] += 1

    def _worth_dividing(self, ask: Submit, item: int) -> bool:
        given, got = ask.input_count * item, ask.output_count * item
        match COLLECTIVES[ask.collective].shape:
            case Shape.ELEMENTS:
                return given >= self.count * LEAST_RANGE
            case Shape.INPUTS:  # the input of each rank is one transfer
                return given >= self.count * LEAST_TRANSFER
            case Shape.OUTPUTS:  # the output of each rank is one transfer
                return got >= self.count * LEAST_TRANSFER
        return False
