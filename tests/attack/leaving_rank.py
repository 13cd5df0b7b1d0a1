"""Rank 0 of a job: submits every collective, waits for its own results only, and leaves."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch._C._distributed_c10d import FileStore

from dlcp_client import Session, Work, bounded, connect, exact
from dlcpd.contract.policy import LossPolicy

WORLD = 2
COUNT = 50_000  # elements of one rank's part
SMALL = 16
MANY = 300  # small operations at the end
TIMEOUT = 60.0  # seconds to join


def part(rank: int, number: int, count: int = COUNT) -> torch.Tensor:
    return torch.arange(count, dtype=torch.float32) + 1000 * number + 100_000 * rank


def joined(store: str, rank: int, socket: str, *, private: bool = False) -> Session:
    where: dict[str, Any] = {} if private else {"socket": socket}
    return connect(
        FileStore(store, WORLD),
        rank,
        WORLD,
        job=store,
        timeout=TIMEOUT,
        arena_bytes=64 << 20,
        **where,
    )


def policy(mode: str) -> LossPolicy:
    return bounded(0.01) if mode == "bounded" else exact()


def together(session: Session, mode: str) -> list[tuple[Work[Any], torch.Tensor, torch.Tensor]]:
    """Work, result and what it must be, of what no rank completes alone."""
    rank, group, both = session.rank, session.group(range(WORLD), name="together"), range(WORLD)
    done = []
    whole, gathered = part(rank, 1), torch.empty(WORLD * COUNT)
    summed = part(0, 1) + part(1, 1)
    done.append((session.all_reduce(whole, policy=policy(mode), name="whole"), whole, summed))
    work = group.all_gather(gathered, part(rank, 2))
    done.append((work, gathered, torch.cat([part(each, 2) for each in both])))
    scattered = torch.empty(COUNT // WORLD)
    work = group.reduce_scatter(scattered, part(rank, 3))
    done.append((work, scattered, (part(0, 3) + part(1, 3)).view(WORLD, -1)[rank]))
    exchanged = torch.empty(COUNT)
    work = group.all_to_all(exchanged, part(rank, 4))
    parts = [part(each, 4).view(WORLD, -1)[rank] for each in both]
    done.append((work, exchanged, torch.cat(parts)))
    for number in range(MANY):
        small = part(rank, number, SMALL)
        done.append(
            (session.all_reduce(small), small, part(0, number, SMALL) + part(1, number, SMALL))
        )
    return done


def from_root(session: Session) -> list[tuple[Work[Any], torch.Tensor, torch.Tensor]]:
    """The same of what rank 0 completes before rank 1 comes."""
    rank, group = session.rank, session.group(range(WORLD), name="from root")
    copied, piece, message = part(rank, 5), torch.empty(COUNT), part(rank, 7)
    done = [(group.broadcast(copied, 0), copied, part(0, 5))]
    given = torch.cat([part(0, 6), part(1, 6)]) if rank == 0 else None
    done.append((group.scatter(piece, given, 0), piece, part(rank, 6)))
    work = group.send(message, 1) if rank == 0 else group.receive(message, 0)
    done.append((work, message, part(0, 7)))
    collected = torch.empty(WORLD * COUNT) if rank == 1 else None
    work = group.gather(collected, part(rank, 8), 1)
    wanted = torch.cat([part(0, 8), part(1, 8)])
    done.append((work, wanted if collected is None else collected, wanted))
    reduced = part(rank, 9)
    wanted = part(0, 9) + part(1, 9) if rank == 1 else part(0, 9)
    done.append((group.reduce(reduced, 1), reduced, wanted))
    return done


def leave(session: Session, way: str) -> None:
    ends: dict[str, Callable[[], Any]] = {
        "close": session.close,
        "return": lambda: None,
        "sys.exit": lambda: sys.exit(3),
        "os._exit": lambda: os._exit(0),
        "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
        "exception": lambda: 1 // 0,
    }
    ends[way]()


def main(store: str, socket: str, way: str, mode: str) -> None:
    session = joined(store, 0, socket, private=mode == "private")
    works = [*together(session, mode), *from_root(session)]
    for work, got, wanted in works:
        work.wait()
        assert torch.equal(got, wanted)
    leave(session, way)


if __name__ == "__main__":
    main(*sys.argv[1:])
