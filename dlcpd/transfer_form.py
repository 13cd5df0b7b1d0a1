"""The form of the transfer layer: interpreted, or compiled from the same source.

A module of dlcpd.core with a .pxd file beside it has two forms: plain Python, and an extension that
`setup.py` builds with Cython into dlcpd/_compiled. A process imports the compiled form of all of
them if each is there and was built from the present source. Otherwise it imports none: a compiled
class holds objects of compiled classes only, and a build that is older than its source must have no
effect. The package dlcpd.core imports this module before any of them.

Environment: DLCPD_TRANSFER=interpreted imports the sources in any case.
"""

import os
import sys
from collections.abc import Mapping, Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import source_hash, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Final

SETTING: Final = "DLCPD_TRANSFER"
INTERPRETED: Final = "interpreted"
COMPILED: Final = "compiled"
PACKAGE: Final = Path(__file__).parent
BUILT: Final = "_compiled"  # folder of the extensions, laid out as the package is
SOURCES: Final = "sources"  # file in it: a line per module, "name hash-of-its-source"


class _Finder:
    """Finds the compiled modules, before the sources."""

    def __init__(self, found: Mapping[str, Path]) -> None:
        self.found = found  # extensions by module

    def find_spec(
        self, name: str, _path: Sequence[str] | None = None, _target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As finders in sys.meta_path do."""
        at = self.found.get(name)
        return spec_from_file_location(name, at) if at is not None else None


def _built(package: Path) -> dict[str, Path]:
    """The extensions by module; empty unless all of them are there, built from this source."""
    found = dict[str, Path]()
    try:
        for line in (package / BUILT / SOURCES).read_text("ascii").splitlines():
            module, built_from = line.split()
            path = Path(*module.split(".")[1:])
            source = (package / path).with_suffix(".py")
            extension = package / BUILT / path.with_name(path.name + EXTENSION_SUFFIXES[0])
            if digest(source) != built_from or not extension.exists():
                return {}
            found[module] = extension
    except (OSError, ValueError):  # not built, or damaged
        return {}
    return found


def digest(source: Path) -> str:
    """Of a source file, for the comparison of a build with it; depends on the version of Python.

    Raises: OSError.
    """
    return source_hash(source.read_bytes()).hex()


def form() -> str:
    """COMPILED or INTERPRETED: the form that this process imports."""
    return COMPILED if _FINDER.found else INTERPRETED


_FINDER: Final = _Finder({} if os.environ.get(SETTING) == INTERPRETED else _built(PACKAGE))
sys.meta_path.insert(0, _FINDER)
