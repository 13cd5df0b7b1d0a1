"""Starts dlcpd's Python processes so that they import no file of a user's folder.

Python searches the working directory (`-m`), the script's folder and PYTHONPATH before the standard
library: the daemon would import a queue.py or numpy/ of a training. So a dlcpd process is started
by this file, run by its path, with `command` and `environment`:

    python -P .../dlcpd/starter.py [FOLDER ...] MODULE [ARGUMENT ...]

MODULE runs as by `python -m`. The process searches for imports in this order:

1. dlcpd's packages: where this file is, so that parent and child are of one version
2. the standard library
3. each FOLDER: those of the parent's sys.path in which packages are installed (*.dist-info)
4. the interpreter's own packages, as `site` finds them
5. the folder that dlcpd is in, for packages that lie beside it

The commands dlcpd, dlcpctl and switchcfg are started by the user's Python, with the user's
PYTHONPATH. They begin here too, and bring sys.path into the same order.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # of the interpreter: no file can take its place
import os
import site
import sys

# Nothing else is imported before sys.path is in order, `typing` included. Type checkers take this
# name for the one of `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Final

STARTER: Final = os.path.abspath(__file__)
HOME: Final = os.path.dirname(os.path.dirname(STARTER))
OURS: Final = ("dlcpd", "dlcp_client", "dlcp_lab", "switchcfg")
# SIGHUP, SIGINT, SIGTERM: blocked while the daemon imports its modules (daemon/early_signals.py).
HELD: Final = (1, 2, 15)
# Installed, they lie side by side; in a checkout two are a folder below.
PLACES: Final = (HOME, os.path.join(HOME, "client"), os.path.join(HOME, "bench"))


def command(module: str, *arguments: str) -> list[str]:
    """The command line that runs a module. The process must be given `environment`."""
    user_site = ["-s"] if sys.flags.no_user_site else []
    return [sys.executable, "-P", *user_site, STARTER, *_installed(), module, *arguments]


def environment(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Without PYTHONPATH: Python would run its sitecustomize before this file."""
    return {name: value for name, value in variables.items() if name != "PYTHONPATH"}


def dlcpd() -> int:
    """The command `dlcpd`."""
    _signal.pthread_sigmask(_signal.SIG_BLOCK, HELD)
    _order()
    return _main_of("dlcpd.daemon.main")()


def dlcpctl() -> int:
    """The command `dlcpctl`."""
    return _command("dlcpd.ctl.main")


def switchcfg() -> int:
    """The command `switchcfg`."""
    return _command("switchcfg.cli.main")


def _command(module: str) -> int:
    # Ctrl-C ends an import without a traceback.
    before = _signal.signal(_signal.SIGINT, _signal.SIG_DFL)
    _order()
    main = _main_of(module)
    _signal.signal(_signal.SIGINT, before)
    return main()


def _order() -> None:
    """Bring sys.path into order."""
    installed = _installed()
    _forget_folders_of_the_user()
    _arrange(installed)


def _main_of(module: str) -> Callable[[], int]:
    from importlib import import_module  # noqa: PLC0415  # not before sys.path is in order

    main: Callable[[], int] = import_module(module).main
    return main


class _Ours:
    """Finds dlcpd's packages in PLACES, before sys.path."""

    @staticmethod
    def find_spec(
        name: str, _path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """As finders in sys.meta_path do."""
        if name not in OURS:
            return None
        from importlib.machinery import PathFinder  # noqa: PLC0415  # likewise

        return PathFinder.find_spec(name, PLACES, target)


def _arrange(installed: Sequence[str]) -> None:
    """Bring sys.path, which has the library and the interpreter's packages, into order."""
    packages = _packages()
    first = (at for at, folder in enumerate(sys.path) if folder in packages)
    at = next(first, len(sys.path))
    sys.path[at:at] = [folder for folder in installed if folder not in sys.path]
    if HOME not in sys.path:
        sys.path.append(HOME)
    sys.meta_path.insert(0, _Ours)


def _forget_folders_of_the_user() -> None:
    """Remove from sys.path the folders of PYTHONPATH, and the script's or the working folder."""
    if not sys.flags.safe_path:
        del sys.path[0]
    named = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    folders = {os.path.abspath(folder) for folder in named.split(os.pathsep) if named}
    folders.discard(os.path.dirname(os.__file__))
    sys.path[:] = [folder for folder in sys.path if folder not in folders]
    sys.path += [folder for folder in _packages() if folder in folders]  # those stay, and go last


def _installed() -> list[str]:
    """Folders of sys.path, beside the interpreter's own, in which packages are installed: by
    `pip install --target`, or one for each package as environment modules have them."""
    packages = _packages()
    return [
        folder
        for folder in sys.path
        if os.path.isabs(folder) and folder not in packages and _has_distributions(folder)
    ]


def _packages() -> list[str]:
    """Folders of the interpreter's own packages."""
    user = [site.getusersitepackages()] if site.ENABLE_USER_SITE else []
    return [*site.getsitepackages(), *user]


def _has_distributions(folder: str) -> bool:
    try:
        return any(name.endswith(".dist-info") for name in os.listdir(folder))
    except OSError:  # a zip file, or none
        return False


def _main() -> None:
    words = sys.argv[1:]
    folders = []
    while os.path.isabs(words[0]):
        folders.append(words.pop(0))
    _arrange(folders)
    sys.argv[:] = words
    from runpy import run_module  # noqa: PLC0415  # not before sys.path is in order

    run_module(words[0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
