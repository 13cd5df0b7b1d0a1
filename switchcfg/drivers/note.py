"""What this host knows of a pending commit, where the device itself does not tell."""

import json
import time
from dataclasses import dataclass
from pathlib import Path

from switchcfg.drivers.driver import Pending


@dataclass(frozen=True, slots=True)
class Note:
    """A file per device. It goes when the commit is confirmed or aborted, or its time is up."""

    file: Path

    def write(self, name: str, who: str, seconds: float) -> None:
        """Before the commit: a note of what is not there after all does no harm."""
        self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        text = json.dumps([name, who, time.time() + seconds])
        self.file.write_text(text, encoding="utf-8")

    def read(self) -> tuple[str, Pending] | None:
        """The commit's name, and what it is; None: there is no note."""
        try:
            name, who, until = json.loads(self.file.read_text(encoding="utf-8"))
            return str(name), Pending(str(who), float(until) - time.time())
        except (OSError, ValueError, TypeError):
            return None

    def drop(self) -> None:
        self.file.unlink(missing_ok=True)
