"""Three ranks of one process, each with a real daemon that loses datagrams and keeps a ledger."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, bounded, connect

WORLD = 3
PAIR = (0, 2)  # a group of their own
SCATTERED, HALVES, LARGE = (
    150_000,
    260_000,
    700_000,
)  # elements: of all, of bfloat16, for both engines
POLICY = bounded(0.2)
STEPS = 7
OPERATIONS = 4 * STEPS  # by job


def config(folder: Path, rank: int, *, loss: float = 0.05, most: int = 1 << 30) -> Path:
    """The file for a rank's daemon of two engines; its ledgers are in `folder`/rankN."""
    file = folder / f"{rank}.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\nlog_level = "warning"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 10.0\nengines = 2\n'
        f'[ledger]\ndirectory = "{folder}/rank{rank}"\ninputs = true\nmax_bytes = {most}\n'
        f"[inject]\nloss = {loss}\nseed = {rank}\n"
    )
    return file


def gradient(rank: int, step: int, name: str) -> torch.Tensor:
    """What a rank contributes: the same at each call."""
    seed = torch.Generator().manual_seed(1000 * step + 10 * rank + len(name))
    count = {"scattered": SCATTERED, "halves": HALVES}.get(name, LARGE)
    made = torch.randn(count, generator=seed)
    return made.bfloat16() if name == "halves" else made


def each(call: Callable[[int], Any], world: int = WORLD) -> list[Any]:
    """call(rank) on a thread for each rank."""
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(call, range(world)))


def run(configs: Sequence[Path], train: Callable[[Session], Any]) -> list[Any]:
    """What `train` returns on each rank."""
    store, over = HashStore(), threading.Barrier(len(configs))

    def rank(number: int) -> Any:
        options: dict[str, Any] = {"timeout": 60.0, "arena_bytes": 256 << 20}
        with connect(store, number, len(configs), config=configs[number], **options) as session:
            result = train(session)
            over.wait(60.0)  # who leaves earlier ends the session of the others
            return result

    return each(rank, len(configs))


def train(session: Session) -> int:
    """Several names, collectives, types and groups, and a loss scale that changes; in flight
    together. Returns segments that were waived."""
    pair = session.group(PAIR, "pair") if session.rank in PAIR else None
    for step in range(STEPS):
        with ExitStack() as over:
            large, halves = (
                gradient(session.rank, step, "large"),
                session.empty(HALVES, torch.bfloat16),
            )
            halves[:] = gradient(session.rank, step, "halves")
            given, mine = session.empty(SCATTERED), session.empty(SCATTERED // WORLD)
            given[:] = gradient(session.rank, step, "scattered")
            scale = 2.0 ** (step % 3)
            works = [
                session.all_reduce(large, "avg", name="large", policy=POLICY),
                session.all_reduce(halves, name="halves", scale=scale, policy=POLICY),
                session.world.reduce_scatter(mine, given, name="scattered", policy=POLICY),
            ]
            if pair is not None:
                shared = gradient(session.rank, step, "of a pair")
                works.append(pair.all_reduce(shared, name="of a pair", policy=POLICY))
            for work in works:
                over.callback(work.wait)
    return session.ledger.waived
