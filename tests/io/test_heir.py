"""A session takes over what was waived in an earlier one of the same rank, and gives it back."""

from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from dlcp_lab.simulation.network import SimNetwork
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.collectives.scratch import ScratchPool
from dlcpd.contract.collectives import WHOLE, Share
from dlcpd.io.clients.client import Client
from dlcpd.io.config import EngineConfig
from dlcpd.numerics.residual import cut

KEY = ("gradient", "uint8", 64)


def client(number: int, share: Share = WHOLE, *, keeps: bool = False) -> Client:
    session = SimNetwork(2).sessions[0]
    session.number = number
    lane = cast("Any", SimpleNamespace(accounts=Accounts()))
    if keeps:
        hole = cut(np.ones(64, np.uint8), 0, np.array([0]), 64, "float32")
        lane.accounts.residuals.put(KEY, [hole])
    return Client(lane, session, EngineConfig(), ScratchPool(1 << 10), share)


def kept(*clients: Client) -> list[int]:
    return [len(each.lane.accounts.residuals) for each in clients]


def test_an_heir_takes_over_and_gives_back() -> None:
    former, heir = client(1, keeps=True), client(2)
    heir.inherit(former)
    assert (kept(former, heir), heir.inherits) == ([0, 1], 1)
    heir.give_back(former)
    assert kept(former, heir) == [1, 0]


def test_another_share_of_large_tensors_is_of_no_use() -> None:
    former, heir = client(1, Share(0, 2), keeps=True), client(2, WHOLE)
    heir.inherit(former)
    assert (kept(former, heir), heir.inherits) == ([1, 0], 0)
