"""One rank of `bench trace`: the same operation with and without recording by its daemon."""

import random
import time
from typing import Any, Final

import torch
import torch.distributed as dist

import dlcp_client
from dlcp_lab.ranks.rank import Conductor
from dlcp_lab.ranks.tensors import join_gloo
from dlcpd.contract.inquiries import Traced, TraceRequest
from dlcpd.inspection.conversation import Conversation

RECORDED: Final = "on"
TURNS: Final = ("off", RECORDED, "off again")  # the last shows the machine's noise


def run(conductor: Conductor, arguments: dict[str, Any]) -> dict[str, Any]:
    """Seconds of each block, by turn, and the number of events of one recorded block."""
    join_gloo(conductor)
    session = dlcp_client.connect()
    try:
        with Conversation(conductor.daemon) as daemon:
            return _TraceMeasurement(conductor, session, daemon, arguments).run()
    finally:
        session.close()
        dist.destroy_process_group()


class _TraceMeasurement:
    def __init__(
        self, conductor: Conductor, session: Any, daemon: Conversation, arguments: dict[str, Any]
    ) -> None:
        self._conductor, self._session, self._daemon = conductor, session, daemon
        self._arguments = arguments
        self._tensor = session.empty((arguments["size"] // 4,), torch.float32)
        self._turns = random.Random(arguments["seed"])  # the same on all ranks
        self._events = 0

    def run(self) -> dict[str, Any]:
        times: dict[str, list[float]] = {turn: [] for turn in TURNS}
        self._block(RECORDED)  # to warm up
        for pair in range(self._arguments["pairs"]):
            order = list(TURNS)
            self._turns.shuffle(order)
            for turn in order:
                times[turn].append(self._block(turn))
            if not pair % 10:
                self._conductor.progress(f"pair {pair + 1} of {self._arguments['pairs']}")
        self._conductor.barrier()
        return times | {"events": self._events}

    def _block(self, turn: str) -> float:
        self._tensor.fill_(1.0)
        self._ask("start")  # the same requests in all turns: they wake the engine up
        self._ask("look" if turn == RECORDED else "forget")
        self._conductor.barrier()
        began = time.perf_counter()
        for _ in range(self._arguments["block"]):
            self._session.all_reduce(self._tensor, "avg", name="traced").wait()
        took = time.perf_counter() - began
        self._events = self._ask("stop")["left"] or self._events
        self._conductor.barrier()
        return took

    def _ask(self, what: str) -> dict[str, Any]:
        return self._daemon.ask(TraceRequest(0, what), Traced).read()
