"""Adam as a program of computation and communication, in two schedules that mean the same.

    torchrun --nproc-per-node 2 examples/fused_program.py

The first schedule is the program as it is written: an all-reduce, then Adam on every rank. The
second is one operation in which each rank updates its part, with 1/N of the state.
"""

import argparse
import time

import torch
import torch.distributed as dist
from torch import Tensor

import dlcp_client
from dlcp_client.fused import language as fl


@fl.program(
    g=fl.local, w=fl.replicated, m=fl.replicated, v=fl.replicated, t=fl.scalar, lr=fl.scalar
)
def adam(  # noqa: PLR0917  # inputs of a program
    g: Tensor, w: Tensor, m: Tensor, v: Tensor, t: Tensor, lr: Tensor
) -> Tensor:
    """Tensors have their whole shape here, whatever a rank keeps of them."""
    g = fl.all_reduce(g, "avg")
    m = fl.update(m, 0.9 * m + 0.1 * g)
    v = fl.update(v, 0.999 * v + 0.001 * g * g)
    step = lr * (m / (1 - 0.9**t)) / ((v / (1 - 0.999**t)).sqrt() + 1e-8)
    return fl.update(w, w - step)


def in_one_operation(written: fl.FusedProgram) -> fl.FusedProgram:
    """The second schedule."""
    program = written.copy()
    scatter, gather = program.split("all_reduce")
    program.reorder(gather)  # computes on slices, and gathers results
    program.as_slice("m", "v")  # so these need not be gathered
    [weights] = program.named("all_gather")
    program.fuse(scatter, weights)
    return program


def main() -> None:
    """Explain both schedules, run them, and compare."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1_000_000)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--kernel", default="auto", choices=["auto", "inductor", "eager"])
    options = parser.parse_args()
    dist.init_process_group("gloo")
    rank, ranks, shape = dist.get_rank(), dist.get_world_size(), (options.elements,)
    written = adam(shape=shape)
    one = in_one_operation(written)
    with dlcp_client.connect() as session:
        weights = {}
        for title, program in (("as written", written), ("in one operation", one)):
            if rank == 0:
                print(f"--- {title}\n{fl.explain(program, ranks)}")
            lowered = fl.lower(program, session.world, kernel=options.kernel)
            w = weights[title] = torch.ones(shape)
            kept = [name for name in ("m", "v") if program.inputs[name] == fl.replicated]
            whole = {name: torch.zeros(shape) for name in kept}
            begun = time.perf_counter()
            for step in range(1, options.steps + 1):
                torch.manual_seed(100 * step + rank)
                t, lr = torch.tensor([step, 0.01], dtype=torch.double)
                lowered(g=torch.randn(shape), w=w, t=t, lr=lr, **whole)
            seconds = (time.perf_counter() - begun) / options.steps
            held = lowered.state_bytes + sum(one.nbytes for one in whole.values())
            if rank == 0:
                how = ", ".join(lowered.kernels.values()) or "node by node"
                print(f"{title}: {1e3 * seconds:.1f} ms a step, {held:,} bytes of state, {how}\n")
        apart = (weights["as written"] - weights["in one operation"]).abs().max().item()
        print(f"rank {rank}: weights differ by {apart:.1e}\n", end="")
        dist.barrier()  # leave together
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
