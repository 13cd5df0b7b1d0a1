"""Requests of two ranks for one collective, and the results that must come. Pure."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.collectives import COLLECTIVES, Root, Shape
from dlcpd.contract.messages import Submit
from dlcpd.requests.checks import ALIGNMENT

RANKS: Final = 2
ROOT: Final = 0
NAMES: Final = tuple(name for name, row in COLLECTIVES.items() if not row.message)
LARGEST: Final = 8  # largest integer in a tensor: every sum is exact in float32
ITEM: Final = 4  # bytes of a float32
MAX_SIZE: Final = 256 << 20  # bytes; a measurement takes five times that memory
Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class EngineTask:
    """A collective whose largest buffer on a rank has about `size` bytes, of float32; `deadline`:
    seconds that an operation may take."""

    collective: str
    size: int
    deadline: float = 1800.0

    @property
    def count(self) -> int:
        """Elements of the largest buffer: a multiple of the ranks, if these divide it."""
        if COLLECTIVES[self.collective].shape is Shape.NOTHING:
            return 0
        if COLLECTIVES[self.collective].by_range:
            return max(self.size // ITEM, 1)
        return max(self.size // ITEM // RANKS, 1) * RANKS

    @property
    def output(self) -> int:
        """Byte of the arena at which outputs begin; inputs begin at 0."""
        if COLLECTIVES[self.collective].by_range:
            return 0
        return -(-self.count * ITEM // ALIGNMENT) * ALIGNMENT

    @property
    def arena_bytes(self) -> int:
        """Bytes of the arena of each rank."""
        return max(self.output + self.count * ITEM, 1 << 16)

    def request(self, rank: int, number: int, now: float) -> Submit:
        """The request of a rank for operation `number`."""
        row = COLLECTIVES[self.collective]
        peer = ROOT if row.root is not Root.NONE else -1
        given, wanted = self._counts(rank)
        return Submit(
            operation=number,
            group=0,
            collective=self.collective,
            schedule="",
            peer=peer,
            tag=0,
            input=0,
            input_count=given,
            output=self.output,
            output_count=wanted,
            sizes=[],
            dtype="float32",
            reduce="sum",
            max_loss=0.0,
            fill="residual",
            traffic_class=0,
            deadline=self.deadline,
            in_place=True,
            name="",
            exempt=[],
            layers=[],
            submitted=now,
        )

    def _counts(self, rank: int) -> tuple[int, int]:
        """Elements of a rank's input and output."""
        row, whole = COLLECTIVES[self.collective], self.count
        each = (whole // RANKS,) * RANKS
        return row.needed(rank, ROOT, whole, whole, each, each)

    def inputs(self, seed: int = 1) -> list[Values]:
        """An input of small integers for each rank."""
        rng = np.random.default_rng(seed)
        return [
            rng.integers(-LARGEST, LARGEST + 1, self._counts(rank)[0]).astype(np.float32)
            for rank in range(RANKS)
        ]

    def result(self, memory: NDArray[np.uint8], rank: int) -> Values:
        """The output of a rank in its arena."""
        return memory[self.output :][: self._counts(rank)[1] * ITEM].view(np.float32)

    def wrong(self, inputs: list[Values], rank: int, result: Values) -> int:
        """Elements of a rank's output that differ from what `inputs` give."""
        expected = self._expected(inputs, rank)
        return 0 if expected is None else int(np.count_nonzero(result != expected))

    def _expected(self, inputs: list[Values], rank: int) -> Any:
        """None: this rank receives nothing."""
        row = COLLECTIVES[self.collective]
        if row.shape is Shape.NOTHING or (row.root is Root.TARGET and rank != ROOT):
            return None
        shard = slice(rank * (self.count // RANKS), (rank + 1) * (self.count // RANKS))
        if row.reduces:
            whole = inputs[0] + inputs[1]
            return whole if row.shape is Shape.ELEMENTS else whole[shard]
        match row.shape:
            case Shape.ELEMENTS:
                return inputs[ROOT]
            case Shape.INPUTS:
                return np.concatenate(inputs)
            case Shape.OUTPUTS:
                return inputs[ROOT][shard]
        return np.concatenate([each[shard] for each in inputs])
