"""numpy arrays as Blocks, and the check that dlcpd can reduce them."""

import importlib
import math
import sys
from collections.abc import Sequence
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dlcp_client.arena.blocks import Block, chained
from dlcp_client.arena.memory import Region, SharedArena
from dlcpd.contract.errors import BadTensor
from dlcpd.contract.messages import DTYPES, MAX_ELEMENTS

Array: TypeAlias = NDArray[Any]

_BFLOAT16: Final = "bfloat16"  # from ml_dtypes, which JAX installs; numpy has none
_NAMES: Final = {np.dtype(name): name for name in DTYPES if name != _BFLOAT16}
_CPU: Final = 1  # kDLCPU
_LOOKS: Final = ("__array_interface__", "__array__", "__dlpack__")  # of arrays of other libraries


class NumpyLibrary:
    """The Library of numpy.

    A read-only array, or one of another library, is read and never written.
    """

    nothing: Final[Array] = np.empty(0, np.float32)
    ranges: Final = None

    def block(self, array: Any) -> Block[Array]:
        """Raises: BadTensor."""
        if array.__class__ is tuple:
            return chained([self.block(part) for part in array])
        own = isinstance(array, np.ndarray)
        found: Array = array if own else _look_into(array)
        dtype = _checked(found)
        address = int(found.__array_interface__["data"][0])
        writable = own and found.flags.writeable
        return Block(found, address, found.size, found.itemsize, dtype, writable)

    def part(self, block: Block[Array], start: int, stop: int) -> Block[Array]:
        return self.block(block.array.reshape(-1)[start:stop])

    def empty(self, arena: SharedArena, shape: Sequence[int], dtype: Any) -> Array:
        """Raises: ArenaFull, BadTensor; nothing changed."""
        kind = _dtype(np.float32 if dtype is None else dtype)
        size = math.prod(shape) * kind.itemsize
        if size == 0:
            return np.empty(tuple(shape), kind)
        # Not np.frombuffer: it keeps its own memoryview, so the end of the array would go
        # unnoticed.
        memory = np.asarray(_Memory(arena.region(size)))
        return memory.view(kind).reshape(tuple(shape))

    def operation(self, op: Any) -> Any:
        """numpy has no objects for operations: returns `op`."""
        return op


ARRAYS: Final = NumpyLibrary()


class _Memory:
    """A region with numpy's interface; numpy keeps it alive while there is a view."""

    def __init__(self, region: Region) -> None:
        self._region = region
        self.__array_interface__ = {
            "version": 3,
            "shape": (len(region),),
            "typestr": "|u1",
            "data": (region.address, False),
        }


def _look_into(array: Any) -> Array:
    """The memory of another library's array, or a copy if it cannot be shared.

    Raises: BadTensor for an object that is no array, is on a device, or is deleted.
    """
    kind = type(array).__name__
    if not any(hasattr(array, name) for name in _LOOKS):
        raise BadTensor(
            f"{kind} is not an array: pass a numpy array, or an array that numpy can view"
        )
    try:
        if hasattr(array, "__dlpack_device__") and array.__dlpack_device__()[0] != _CPU:
            raise BadTensor(
                f"the {kind} is on a device, and dlcp_client.numpy reduces arrays of the CPU "
                "only: copy it (jax.device_get, cupy.asnumpy) and copy the result back"
            )
        looks = hasattr(array, "__array__") or hasattr(array, "__array_interface__")
        return np.asarray(array) if looks else np.from_dlpack(array)
    except (BufferError, RuntimeError, TypeError, ValueError) as exc:
        raise BadTensor(f"numpy cannot view the {kind}: {exc}") from exc


def _checked(array: Array) -> str:
    """The contract's name of the dtype. Raises: BadTensor."""
    if type(array) not in (np.ndarray, np.memmap):
        raise BadTensor(
            f"{type(array).__name__} is an array subclass; pass the plain array inside it"
        )
    name = _name(array.dtype)
    if not name:
        raise BadTensor(f"dtype {array.dtype} cannot be reduced; convert to one of {_known()}")
    if not array.flags.c_contiguous:
        raise BadTensor(
            f"the array of shape {array.shape} and strides {array.strides} is not contiguous; "
            f"reduce np.ascontiguousarray(...) and copy the result back"
        )
    if array.size > MAX_ELEMENTS:
        raise BadTensor(
            f"an array of {array.size} elements is too large: one operation takes at most "
            f"{MAX_ELEMENTS}; split the array"
        )
    return name


def _name(dtype: np.dtype[Any]) -> str:
    """The contract's name; "": it has none."""
    if name := _NAMES.get(dtype):
        return name
    module = sys.modules.get("ml_dtypes")  # its dtypes exist only after the import
    return _BFLOAT16 if module and dtype == np.dtype(module.bfloat16) else ""


def _dtype(asked: Any) -> np.dtype[Any]:
    """`asked` as a numpy dtype. Raises: BadTensor."""
    try:
        kind = importlib.import_module("ml_dtypes").bfloat16 if asked == _BFLOAT16 else asked
        dtype: np.dtype[Any] = np.dtype(kind)
    except ImportError as exc:
        raise BadTensor("bfloat16 arrays need the package ml_dtypes; install it") from exc
    except TypeError as exc:
        raise BadTensor(f"dtype {asked!r} is not a dtype of numpy; use one of {_known()}") from exc
    if not _name(dtype):
        raise BadTensor(f"dtype {dtype} cannot be reduced; use one of {_known()}")
    return dtype


def _known() -> str:
    return ", ".join(DTYPES)
