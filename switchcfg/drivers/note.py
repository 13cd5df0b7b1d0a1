"""What this host knows of a pending commit, where the device itself does not tell."""

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
    """A file per device. It goes when the commit is confirmed or aborted, or its time is up.

    What another user could have put there is refused: UnsafePath, an OSError.
    """

    file: Path

    def write(self, name: str, who: str, seconds: float) -> None:
        """Before the commit: a note of what is not there after all does no harm."""
        text = json.dumps([name, who, time.time() + seconds])
        with holding(self.file, make=PRIVATE_FOLDER) as (folder, file):
            folder.replace(file, text.encode())

    def read(self) -> tuple[str, Pending] | None:
        """The commit's name, and what it is; None: there is no note."""
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
