"""The state of an optimizer whose parts lie on all ranks, in torch's format."""

from collections.abc import Sequence
from typing import Any, Final

import torch
from torch.optim import Optimizer

from dlcp_client.fused.saved_state import check_state, numbered
from dlcp_client.fused.shard_update import ShardUpdate, State
from dlcp_client.session import Session

_BITS: Final = {torch.float32: torch.int32, torch.float64: torch.int64}


def whole_state(
    session: Session, optimizer: Optimizer, shards: Sequence[ShardUpdate], saved: dict[str, Any]
) -> dict[int, State]:
    """The state of every parameter, by its number in `saved`, the groups in torch's format. Every
    rank calls it. Raises: the error that ended an operation."""
    number = {id(parameter): at for at, parameter in numbered(optimizer, saved)}
    found = dict[int, State]()
    for shard in shards:
        whole = shard.state()
        if shard.divided:
            join_parts(session, whole)
        for slot, state in zip(shard.bucket.slots, shard.by_parameter(whole), strict=True):
            if state:
                found[number[id(slot.parameter)]] = state
    return dict(sorted(found.items()))


def states_of(
    optimizer: Optimizer, shards: Sequence[ShardUpdate], saved: dict[str, Any]
) -> list[list[State]]:
    """The states of the parameters of each shard in a state_dict. Raises: BadConfig if it is not
    of such an optimizer and model."""
    state = {id(p): saved["state"].get(at, {}) for at, p in numbered(optimizer, saved)}
    found = list[list[State]]()
    for shard in shards:
        states = [state.get(id(slot.parameter), {}) for slot in shard.bucket.slots]
        for slot, one in zip(shard.bucket.slots, states, strict=True):
            if any(states):
                check_state(slot.parameter, one, shard.names, counts=shard.counts)
        found.append(states)
    return found


def join_parts(session: Session, whole: State) -> None:
    """Put the parts of all ranks together: the others have 0, so no bit changes. Raises: the error
    that ended an operation."""
    works = [
        session.world.all_reduce(tensor.view(_BITS[tensor.dtype]), "bor")
        for tensor in whole.values()
    ]
    for work in works:
        work.wait()
