"""CUDA as a Device, through torch alone. It is kept thin: tests use `fake`, whose proof of staging
holds here if each line does what CUDA documents. tests/c10d/test_cuda.py runs it on a GPU."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from typing import Any, Final

import torch
from torch.futures import Future

from dlcp_client.device.seam import CannotPin
from dlcp_client.device.spans import spans
from dlcpd.contract.errors import BadTensor

_cuda: Final[Any] = torch.cuda  # parts of it have no types
PORTABLE: Final = 1  # cudaHostRegisterPortable: locked for every device of the process


class CudaEvent:
    """A CUDA event that a thread sleeps on (cudaEventBlockingSync): otherwise waiting would spin on
    a core that the engine could use. torch releases the GIL meanwhile."""

    def __init__(self, stream: torch.cuda.Stream) -> None:
        self.event: Final = _cuda.Event(blocking=True)
        self.event.record(stream)

    def wait(self) -> None:
        self.event.synchronize()

    def done(self) -> bool:
        return bool(self.event.query())


class Cuda:
    """One GPU. The caller keeps tensors until their events: the caching allocator knows only a
    tensor's own stream, and nothing here calls `record_stream`."""

    def __init__(self, index: int) -> None:
        self._device = torch.device("cuda", index)
        self._out, self._in, self._aside = (_cuda.Stream(self._device) for _ in range(3))

    @property
    def name(self) -> str:
        return str(self._device)

    def mark(self) -> CudaEvent:
        return CudaEvent(torch.cuda.current_stream(self._device))

    def follow(self, event: CudaEvent) -> None:
        torch.cuda.current_stream(self._device).wait_event(event.event)

    def fetch(
        self, host: memoryview, array: torch.Tensor, after: CudaEvent, cuts: Sequence[int]
    ) -> CudaEvent:
        with _on(self._out, after, array):
            for here, there in spans(host, array, cuts):
                here.copy_(there, non_blocking=True)
            return CudaEvent(self._out)

    def deliver(
        self, array: torch.Tensor, host: memoryview, after: CudaEvent, cuts: Sequence[int]
    ) -> CudaEvent:
        with _on(self._in, after, array):
            for here, there in spans(host, array, cuts):
                there.copy_(here, non_blocking=True)
            return CudaEvent(self._in)

    @contextmanager
    def aside(self, after: CudaEvent | None) -> Iterator[None]:
        if after is not None:
            self._aside.wait_event(after.event)
        with torch.cuda.stream(self._aside):
            yield

    def future(self) -> "Future[None]":
        return Future(devices=[self._device])

    def pin(self, address: int, size: int) -> None:
        runtime = _cuda.cudart()
        with torch.cuda.device(self._device):
            found = runtime.cudaHostRegister(address, size, PORTABLE)
            if int(found) == 0:
                return
            # CUDA reports a failure at the next check, and torch checks after each kernel: launch a
            # harmless kernel that receives the error.
            with suppress(RuntimeError):
                torch.empty(1, device=self._device).fill_(1)
        raise CannotPin(f"cudaHostRegister: {runtime.cudaGetErrorString(found)}")

    def unpin(self, address: int) -> None:
        _cuda.cudart().cudaHostUnregister(address)  # at the end: the result is ignored


@cache
def cuda(index: int) -> Cuda:
    """The GPU with this number.

    Raises: BadTensor if torch is built without CUDA or finds no GPU.
    """
    if not torch.cuda.is_available():
        why = "finds no GPU" if torch.version.cuda else "is built without CUDA"
        raise BadTensor(
            f"a tensor is on cuda:{index}, and torch {torch.__version__} of this process "
            f"{why}: install a torch with CUDA that fits the driver, or keep the tensors on "
            "the CPU"
        )
    return Cuda(index)


@contextmanager
def _on(stream: torch.cuda.Stream, after: CudaEvent, array: torch.Tensor) -> Iterator[None]:
    """Make `stream` the current one inside, after the event. The thread's own is restored."""
    stream.wait_event(after.event)
    with torch.cuda.stream(stream), torch.inference_mode(array.is_inference()):
        yield
