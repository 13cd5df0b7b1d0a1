"""Stores a pending commit's name on this host, where the device does not report it."""

import json
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from dlcpd.ipc.held_folder import PRIVATE_FOLDER, holding
from dlcpd.ipc.safe_path import UnsafePath
from switchcfg.drivers.driver import Pending


@dataclass(frozen=True, slots=True)
class Note:
    """A file per device, removed when the commit is confirmed or aborted.

    Raises: UnsafePath, an OSError, for a file that another user could have written.
    """

    file: Path

    def write(self, name: str, who: str, seconds: float) -> None:
        """Write the note before the commit: a note without a commit is harmless."""
        text = json.dumps([name, who, time.time() + seconds])
        with holding(self.file, make=PRIVATE_FOLDER) as (folder, file):
            folder.replace(file, text.encode())

    def read(self) -> tuple[str, Pending] | None:
        """(the commit's name, the commit); None: there is no note."""
        try:
            with holding(self.file) as (folder, file):
                name, who, until = json.loads(folder.read(file))
            return str(name), Pending(str(who), float(until) - time.time())
        except UnsafePath:
            raise
        except (OSError, ValueError, TypeError):
            return None

    def drop(self) -> None:
        with suppress(FileNotFoundError), holding(self.file) as (folder, file):
            folder.remove(file)
