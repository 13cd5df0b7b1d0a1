"""Where a daemon keeps its own files."""

from pathlib import Path


def state_file(folders: str, socket: str | None, name: str) -> Path | None:
    """In the first of the service manager's state `folders`, which outlives the boot; without one,
    beside the session socket. None: a private daemon, which has no `socket`, keeps no file."""
    if socket is None:
        return None
    folder = folders.partition(":")[0]
    return Path(folder) / name if folder else Path(f"{socket}.{name}")
