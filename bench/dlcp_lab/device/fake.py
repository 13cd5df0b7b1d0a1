"""A test device: host memory, asynchronous streams, and an error for memory used before its event.

    with FakeDevice(seed=1).holding_all():
        ddp.register(DistributedDataParallel(model))

Streams are threads that do their work in order, each item after a delay drawn from the seed. On a
real device, a missed event gives wrong numbers at times; here it always raises UseBeforeEvent.
"""

import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from queue import SimpleQueue
from typing import Final

import torch
from torch.futures import Future

from dlcp_client.device.registry import extended
from dlcp_client.device.seam import CannotPin
from dlcp_client.device.spans import spans
from dlcp_lab.device.happens import HOST, Clock, History, Range, UseBeforeEvent

OUT: Final = "stream out"
IN: Final = "stream in"
CURRENT: Final = "current stream"
PATIENCE: Final = 60.0  # seconds; work that takes longer counts as hung


class Event:
    """A point in a fake stream."""

    def __init__(self, seen: Clock, learn: Callable[[Clock], None]) -> None:
        self.seen, self._learn = seen, learn
        self.reached = threading.Event()
        self.error: BaseException | None = None  # error of the work before it

    def wait(self) -> None:
        """Wait, and record that the process has seen it. Raises: the error of earlier work."""
        self.await_reached()
        self._learn(self.seen)

    def done(self) -> bool:
        """Whether it is reached. If so, the process has seen it, as after `wait`."""
        over = self.reached.is_set()
        if over:
            self._learn(self.seen)
        return over

    def await_reached(self) -> None:
        """Wait as a stream does: the process has not seen it. Raises: as `wait`."""
        if not self.reached.wait(PATIENCE):
            raise TimeoutError(f"an event of the fake device was not reached in {PATIENCE:g} s")
        if self.error is not None:
            raise self.error


class Stream:
    """Work in order, on its own thread."""

    def __init__(self, name: str, delays: Iterator[float]) -> None:
        self._delays = delays
        self._work: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._hurry = threading.Event()
        self._thread = threading.Thread(target=self._serve, name=f"fake {name}", daemon=True)
        self._thread.start()

    def put(self, work: Callable[[], object], event: Event) -> None:
        """Do `work` after earlier work, then reach `event`, with the error of `work` if any."""

        def run() -> None:
            try:
                work()
            except BaseException as exc:
                event.error = exc
            event.reached.set()

        self._work.put(run)

    def close(self) -> None:
        """Finish all work without delays, and end the thread."""
        self._hurry.set()
        self._work.put(None)
        self._thread.join(PATIENCE)

    def _serve(self) -> None:
        while (work := self._work.get()) is not None:
            self._hurry.wait(next(self._delays))
            work()
            del work  # an idle thread holds no tensors


class FakeDevice:
    """One device. `seed` draws its delays, of at most `slowest` seconds."""

    def __init__(self, seed: int = 0, *, name: str = "fake:0", slowest: float = 0.002) -> None:
        self.name: Final = name
        self.lockable = 1 << 62  # bytes that `pin` may lock
        self.copied = {OUT: 0, IN: 0}  # bytes, by stream
        self._lock = threading.Lock()  # guards the fields below
        self._history = History()
        self._storages: set[int] = set()  # addresses of the tensors that `tensor` made
        self._locked: dict[int, int] = {}  # bytes, by address
        self._host_is_current = False
        self._of_host: list[Range] = []  # memory that is never on it
        self._streams = {
            stream: Stream(stream, _delays(f"{seed} {name} {stream}", slowest))
            for stream in (OUT, IN, CURRENT)
        }

    @property
    def pinned(self) -> int:
        """Bytes that are locked now."""
        return sum(self._locked.values())

    @property
    def open(self) -> int:
        """Number of memory accesses that the process has not seen complete."""
        return len(self._history)

    # --- for tests and examples -------------------------------------------------------

    @contextmanager
    def holding(self) -> Iterator["FakeDevice"]:
        """Inside, tensors of `tensor` are on this device. Only `launch` may access them."""
        with self._open_for(lambda tensor: tensor.untyped_storage().data_ptr() in self._storages):
            yield self

    @contextmanager
    def holding_all(self) -> Iterator["FakeDevice"]:
        """Inside, every tensor of this process is on this device, and the process itself is its
        current stream: torch computes there directly. So following an event blocks."""
        self._host_is_current = True
        with self._open_for(lambda tensor: not self._spared(tensor)):
            yield self

    def spare(self, address: int, size: int) -> None:
        """Under `holding_all`, tensors in this memory are the host's."""
        self._of_host.append((address, address + size))

    def _spared(self, tensor: torch.Tensor) -> bool:
        at = tensor.data_ptr()
        on_host = any(start <= at < stop for start, stop in self._of_host)
        return on_host or tensor.device.type != "cpu"

    def tensor(self, values: torch.Tensor) -> torch.Tensor:
        """A copy of `values` on this device."""
        made = values.clone()
        self._storages.add(made.untyped_storage().data_ptr())
        return made

    def launch(
        self,
        kernel: Callable[[], object],
        *,
        reads: Sequence[torch.Tensor] = (),
        writes: Sequence[torch.Tensor] = (),
    ) -> Event:
        """Put `kernel` on the current stream. `reads`, `writes`: tensors that it accesses. Raises:
        UseBeforeEvent."""
        touched = [_place(t) for t in reads], [_place(t) for t in writes]
        with self._lock:
            self._history.use(CURRENT, *touched, "a kernel")
            event = self._event(CURRENT)
            self._streams[CURRENT].put(kernel, event)
        return event

    def lend(self, stream: str, where: Range, what: str) -> Clock:
        """Record that a component outside the device accesses memory from now on. Returns the clock
        to pass to `returned`.

        Raises: UseBeforeEvent.
        """
        with self._lock:
            self._history.use(stream, [where], [where], what)
            return self._history.now(stream)

    def returned(self, seen: Clock) -> None:
        """Record that the process has seen the end of the access."""
        with self._lock:
            self._history.learn(HOST, seen)

    def close(self) -> None:
        """Finish all work, and end the threads."""
        for stream in self._streams.values():
            stream.close()

    # --- the seam ---------------------------------------------------------------------

    def mark(self) -> Event:
        with self._lock:
            if self._host_is_current:
                event = self._event(HOST)
                event.reached.set()
                return event
            event = self._event(CURRENT)
            self._streams[CURRENT].put(lambda: None, event)
        return event

    def follow(self, event: Event) -> None:
        if self._host_is_current:
            event.wait()
            return
        with self._lock:
            self._history.learn(CURRENT, event.seen)
            self._streams[CURRENT].put(event.await_reached, self._event(CURRENT))

    def fetch(
        self, host: memoryview, array: torch.Tensor, after: Event, cuts: Sequence[int]
    ) -> Event:
        pairs = [(here, there) for here, there in spans(host, array, cuts)]
        self._check_uncrossed(here for here, _ in pairs)
        what = f"a copy of {len(host)} B to the arena"
        return self._copy(OUT, pairs, after, what)

    def deliver(
        self, array: torch.Tensor, host: memoryview, after: Event, cuts: Sequence[int]
    ) -> Event:
        pairs = [(there, here) for here, there in spans(host, array, cuts)]
        self._check_uncrossed(here for _, here in pairs)
        what = f"a copy of {len(host)} B to the device"
        return self._copy(IN, pairs, after, what)

    def aside(self, after: Event | None) -> AbstractContextManager[None]:
        """Does nothing: the device has only one current stream, with less parallelism than CUDA."""
        return nullcontext()

    def future(self) -> "Future[None]":
        return Future()

    def pin(self, address: int, size: int) -> None:
        if self.pinned + size > self.lockable:
            raise CannotPin(f"{self.lockable - self.pinned} B of lockable memory are left")
        self._locked[address] = size

    def unpin(self, address: int) -> None:
        """Raises: UseBeforeEvent if a copy may be in progress."""
        size = self._locked.pop(address)
        with self._lock:
            for what in self._history.users((address, address + size), (OUT, IN)):
                raise UseBeforeEvent(f"unlocking memory (host) does not wait for: {what}")

    # --- inside -----------------------------------------------------------------------

    @contextmanager
    def _open_for(self, claims: Callable[[torch.Tensor], bool]) -> Iterator[None]:
        try:
            with extended(lambda tensor: self if claims(tensor) else None):
                yield
        finally:
            self.close()

    def _copy(
        self,
        stream: str,
        pairs: Iterable[tuple[torch.Tensor, torch.Tensor]],
        after: Event,
        what: str,
    ) -> Event:
        """Copy the second of each pair to the first."""
        targets, sources = ([_place(t) for t in side] for side in zip(*pairs, strict=True))

        def work() -> None:
            after.await_reached()
            for target, source in pairs:
                target.copy_(source)

        with self._lock:
            self._history.learn(stream, after.seen)
            self._history.use(stream, sources, targets, what)
            self.copied[stream] += sum(stop - start for start, stop in targets)
            event = self._event(stream)
            self._streams[stream].put(work, event)
        return event

    def _check_uncrossed(self, hosts: Iterable[torch.Tensor]) -> None:
        """Raises: ValueError, as CUDA may, for a transfer across several locked pieces."""
        ends = {end for start, size in self._locked.items() for end in (start, start + size)}
        for start, stop in map(_place, hosts):
            if any(start < end < stop for end in ends):
                raise ValueError("invalid argument: a transfer crosses an end of locked memory")

    def _event(self, stream: str) -> Event:
        return Event(self._history.now(stream), self.returned)


def _place(tensor: torch.Tensor) -> Range:
    return tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes


def _delays(seed: str, slowest: float) -> Iterator[float]:
    draw = random.Random(seed)  # not for secrets
    while True:
        yield draw.uniform(0.0, slowest)
