"""Every form in which PyTorch's stub documents the collectives of a process group, called on each
rank; and what checkpoints, FSDP and device meshes ask of a group. Nothing here knows the backend.
"""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed import checkpoint
from torch.distributed.checkpoint import state_dict as state_dicts
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

# PyTorch types these poorly.
c10d: Final[Any] = dist.distributed_c10d
dcp: Final[Any] = checkpoint
states: Final[Any] = state_dicts
Arrays = dict[str, np.ndarray[Any, Any]]
SIZE: Final = 6  # elements
TIME: Final = timedelta(seconds=20)
MAX: Final[Any] = dist.ReduceOp.MAX


def each(*calls: Callable[..., Any]) -> tuple[Any, ...]:
    """Of one method."""
    return calls


class Calls:
    """Of one rank: each makes tensors, calls, waits, and notes what stands in them."""

    def __init__(self, group: Any, rank: int, size: int) -> None:
        self.group, self.rank, self.size = group, rank, size
        self.noted: Arrays = {}

    def note(self, name: str, tensors: list[torch.Tensor], work: Any) -> None:
        work.wait()
        for number, tensor in enumerate(tensors):
            self.noted[f"{name} {len(self.noted)} {number}"] = tensor.numpy().copy()

    def mine(self, count: int = SIZE) -> torch.Tensor:
        return torch.arange(count, dtype=torch.float32) * (self.rank + 1)

    def empty(self) -> list[torch.Tensor]:
        return [torch.zeros(SIZE) for _ in range(self.size)]

    def in_place(self) -> None:
        """One tensor, or a list of one."""
        group, options = self.group, dist.AllreduceOptions()
        options.reduceOp = MAX
        chosen = dist.BroadcastOptions()
        chosen.rootRank, chosen.rootTensor = 1, 0
        to = dist.ReduceOptions()
        to.rootRank, to.reduceOp = 1, MAX
        calls: list[tuple[str, Callable[[torch.Tensor], Any]]] = [
            ("allreduce", lambda t: group.allreduce([t])),
            ("allreduce", lambda t: group.allreduce([t], options)),
            ("allreduce", lambda t: group.allreduce([t], opts=options)),
            ("allreduce", lambda t: group.allreduce([t], MAX)),
            ("allreduce", lambda t: group.allreduce([t], MAX, TIME)),
            ("allreduce", lambda t: group.allreduce(tensors=[t], op=MAX, timeout=TIME)),
            ("allreduce", group.allreduce),
            ("allreduce", lambda t: group.allreduce(t, MAX)),
            ("allreduce", lambda t: group.allreduce(t, op=MAX, timeout=TIME)),
            ("allreduce", lambda t: group.allreduce(tensor=t, op=dist.ReduceOp(MAX))),
            ("broadcast", lambda t: group.broadcast([t], chosen)),
            ("broadcast", lambda t: group.broadcast([t])),
            ("broadcast", lambda t: group.broadcast(t, 1)),
            ("broadcast", lambda t: group.broadcast(tensor=t, root=1, timeout=TIME)),
        ]
        for name, call in calls:
            tensor = self.mine()
            self.note(name, [tensor], call(tensor))
        for reduce in each(
            lambda t: group.reduce([t], to),
            lambda t: group.reduce(t, 1),
            lambda t: group.reduce(t, 1, MAX, TIME),
            lambda t: group.reduce(tensor=t, root=1, op=MAX, timeout=TIME),
        ):
            tensor = self.mine()
            self.note("reduce", [tensor] if self.rank == 1 else [], reduce(tensor))
        tensors = [self.mine(), self.mine(3)]
        self.note("allreduce_coalesced", tensors, group.allreduce_coalesced(tensors))

    def gathered(self) -> None:
        group, to = self.group, dist.GatherOptions()
        to.rootRank = 1
        for gather in each(
            lambda o, t: group.allgather([o], [t]),
            lambda o, t: group.allgather([o], [t], c10d.AllgatherOptions()),
            group.allgather,
            lambda o, t: group.allgather(o, t, TIME),
            lambda o, t: group.allgather(output_tensors=o, input_tensor=t, timeout=TIME),
        ):
            outputs = self.empty()
            self.note("allgather", outputs, gather(outputs, self.mine()))
        for gather in each(
            lambda o, t: group.gather([o] if o else [], [t], to),
            lambda o, t: group.gather(o, t, 1),
            lambda o, t: group.gather(output_tensors=o, input_tensor=t, root=1, timeout=TIME),
        ):
            outputs = self.empty() if self.rank == 1 else []
            self.note("gather", outputs, gather(outputs, self.mine()))
        whole = torch.zeros(SIZE * self.size)
        self.note("base", [whole], group._allgather_base(whole, self.mine()))  # noqa: SLF001
        whole = torch.zeros(SIZE * self.size)
        self.note("single", [whole], group.all_gather_single(output=whole, input=self.mine()))
        whole = torch.zeros(SIZE * self.size)
        self.note(
            "coalesced", [whole], group.allgather_into_tensor_coalesced([whole], [self.mine()])
        )

    def scattered(self) -> None:
        group, root = self.group, dist.ScatterOptions()
        root.rootRank = 1
        for scatter in each(
            lambda o, i: group.scatter([o], [i] if i else [], root),
            lambda o, i: group.scatter(o, i, 1),
            lambda o, i: group.scatter(output_tensor=o, input_tensors=i, root=1, timeout=TIME),
        ):
            given = [self.mine() + number for number in range(self.size)] if self.rank == 1 else []
            output = torch.zeros(SIZE)
            self.note("scatter", [output], scatter(output, given))
        for scatter in each(
            lambda o, i: group.reduce_scatter([o], [i]),
            group.reduce_scatter,
            lambda o, i: group.reduce_scatter(o, i, MAX, TIME),
            lambda o, i: group.reduce_scatter(output=o, input=i, op=MAX, timeout=TIME),
        ):
            given = [self.mine() + number for number in range(self.size)]
            output = torch.zeros(SIZE)
            self.note("reduce_scatter", [output], scatter(output, given))
        output, whole = torch.zeros(SIZE), self.mine(SIZE * self.size)
        self.note("base", [output], group._reduce_scatter_base(output, whole))  # noqa: SLF001
        output, whole = torch.zeros(SIZE), self.mine(SIZE * self.size)
        self.note("single", [output], group.reduce_scatter_single(output, whole))
        output = torch.zeros(SIZE)
        self.note("coalesced", [output], group.reduce_scatter_tensor_coalesced([output], [whole]))

    def exchanged(self) -> None:
        group = self.group
        given = self.mine(SIZE * self.size)
        for exchange in each(
            lambda o: group.alltoall_base(o, given, [], []),
            lambda o: group.all_to_all_single(o, given, [], [], TIME),
            lambda o: group.alltoall_base(
                output=o, input=given, output_split_sizes=[], input_split_sizes=[], timeout=TIME
            ),
        ):
            output = torch.zeros(SIZE * self.size)
            self.note("alltoall_base", [output], exchange(output))
        for wait in (group.barrier(), group.barrier(TIME), group.barrier(timeout=TIME)):
            wait.wait()
        group.barrier(dist.BarrierOptions()).wait()


def forms(rank: int, size: int) -> Arrays:
    """What stands in all tensors after all calls."""
    calls = Calls(dist.group.WORLD, rank, size)
    for part in (calls.in_place, calls.gathered, calls.scattered, calls.exchanged):
        part()
    return calls.noted


# --- what PyTorch asks ------------------------------------------------------------------------


def loaded(rank: int, size: int, folder: str) -> Arrays:
    """Load a state that rank 0 alone has; save in the background, by FSDP2 and by DDP."""
    torch.manual_seed(1)
    model = nn.Linear(12, 12)
    full = {key: value.clone() for key, value in model.state_dict().items()} if rank == 0 else {}
    torch.manual_seed(2)
    sharded = fully_shard(nn.Linear(12, 12), mesh=init_device_mesh("cpu", (size,)))
    options = states.StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    states.set_model_state_dict(sharded, full, options=options)
    dcp.async_save(
        states.get_model_state_dict(sharded), checkpoint_id=str(Path(folder, "a"))
    ).result()
    plain = DistributedDataParallel(nn.Linear(12, 12))
    apart = dist.new_group()
    saved = dcp.async_save(
        plain.state_dict(), checkpoint_id=str(Path(folder, "b")), process_group=apart
    )
    saved.result()
    state = {key: torch.zeros_like(value) for key, value in plain.state_dict().items()}
    dcp.load(state, checkpoint_id=str(Path(folder, "b")))
    whole = states.get_model_state_dict(
        sharded, options=states.StateDictOptions(full_state_dict=True)
    )
    found = {f"sharded {key}": value for key, value in whole.items()}
    found |= {f"plain {key}": value for key, value in state.items()}
    return {key: value.detach().numpy().copy() for key, value in found.items()}


def asked(rank: int, size: int) -> dict[str, Any]:
    """Questions whose answers do not depend on the backend."""
    world: Any = dist.group.WORLD
    part: Any = dist.new_group(list(range(size)), group_desc="a part", timeout=TIME)
    local: Any = dist.new_group([rank], use_local_synchronization=True)
    cpu = torch.device("cpu")
    for group in (world, part, local):
        assert cpu in group._device_types  # noqa: SLF001
        backend = group._get_backend(cpu)  # noqa: SLF001
        assert backend.options._timeout > timedelta(0)  # noqa: SLF001
        assert backend.name() == dist.get_backend(group)
    dist.barrier()  # a rank that ends closes connections that Gloo's other ranks are still opening
    return {
        "ranks": [(g.rank(), g.size(), dist.get_process_group_ranks(g)) for g in (world, part)],
        "options": part._get_backend(cpu).options.global_ranks_in_group,  # noqa: SLF001
        "timeout": part._get_backend(cpu).options._timeout,  # noqa: SLF001
        "described": part.group_desc,
        "bound": world.bound_device_id,
        "hooks": world._has_hooks(),  # noqa: SLF001
        "objects": c10d._get_object_coll_device(world),  # noqa: SLF001
        "splits": world._get_backend(cpu).supports_splitting,  # noqa: SLF001
        "own memory": world._get_backend(cpu).supports_tensor_alloc(cpu),  # noqa: SLF001
    }
