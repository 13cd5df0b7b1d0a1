"""Registers the c10d backend with torch: now, or when torch is imported.

Importing torch here would make `import dlcp_client.numpy` import it, or fail without torch. The
backend itself is imported when a group is created: torch may be imported by a module of this
package, which is then incomplete.
"""

import sys
from collections.abc import Callable, Sequence
from functools import cache
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Final

NAME: Final = "dlcp"
DEVICES: Final = ("cpu", "cuda")  # device types that the backend serves


class _WithTorch(MetaPathFinder):
    """Finds torch as Python does, and registers the backend at the end of its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)  # so that the next search finds torch itself
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]  # a hook
        return spec


def register_with_torch() -> None:
    """Make "dlcp" a backend of torch.distributed, now or as soon as torch is imported."""
    if "torch" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _WithTorch())


def _register() -> None:
    import torch.distributed as dist  # noqa: PLC0415  # torch may be missing

    if dist.is_available():
        register(_create)


def register(create: Callable[[Any, Any], Any]) -> None:
    """Have torch.distributed call `create` for groups of this backend."""
    import torch  # noqa: PLC0415  # torch may be missing
    import torch.distributed as dist  # noqa: PLC0415  # likewise

    # A list: PyTorch splits a string into letters. Without CUDA in a build of torch that device is
    # left out: ShardedTensor takes a backend's last device that is not the CPU.
    cuda = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]  # of PyTorch
    devices = [each for each in DEVICES if each == "cpu" or cuda]
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=devices)


def _create(asked: Any, options: Any) -> Any:
    return _creator()(asked, options)


@cache
def _creator() -> Callable[[Any, Any], Any]:
    from .c10d import creator  # noqa: PLC0415  # only when a group is created

    return creator()
