"""What lies beside the package in a source checkout and is not installed with it."""

import importlib
import sys
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.errors import BadConfig

_ROOT: Final = Path(__file__).parents[2]


def from_checkout(module: str, wanted_by: str) -> Any:
    """A module of `bench`.

    Raises: BadConfig naming the option or command that wants it.
    """
    if (_ROOT / "bench" / "fabric").exists() and str(_ROOT) not in sys.path:
        sys.path.append(str(_ROOT))
    try:
        return importlib.import_module(module)
    except ImportError as exc:
        raise BadConfig(
            f"{wanted_by}: the emulated fabric is part of the source checkout; run dlcpctl there, "
            "or place the hosts yourself with --netns"
        ) from exc
