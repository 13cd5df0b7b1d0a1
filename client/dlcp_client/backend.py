"""Registers the c10d backend with torch: now, or when somebody imports torch.

To import torch here would make `import dlcp_client.numpy` import it, or fail where there is none.
The backend itself is imported when a group is made: whoever imports torch may be a module of this
package, which is not complete then.
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
DEVICES: Final = ("cpu", "cuda")  # whose tensors it takes


class _WithTorch(MetaPathFinder):
    """Finds torch as Python does, and registers the backend at the end of its import."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != "torch":
            return None
        sys.meta_path.remove(self)  # and so out of the way of the search for it
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec


def register_with_torch() -> None:
    """Make "dlcp" a backend of torch.distributed, in every process that has torch, too."""
    if "torch" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _WithTorch())


def _register() -> None:
    import torch.distributed as dist  # noqa: PLC0415

    if dist.is_available():
        register(_create)


def register(create: Callable[[Any, Any], Any]) -> None:
    """Have torch.distributed call `create` for groups of this backend."""
    import torch.distributed as dist  # noqa: PLC0415

    # A list: PyTorch takes a string apart into letters.
    dist.Backend.register_backend(NAME, create, extended_api=True, devices=[*DEVICES])


def _create(asked: Any, options: Any) -> Any:
    return _creator()(asked, options)


@cache
def _creator() -> Callable[[Any, Any], Any]:
    from .c10d import creator  # noqa: PLC0415

    return creator()
