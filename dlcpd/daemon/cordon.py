"""The cordon: an operator's order to take no new jobs, kept over restarts in a file."""

import contextlib
import os
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import NotPermitted
from dlcpd.contract.inquiries import CordonRequest
from dlcpd.contract.printable import one_line
from dlcpd.daemon import log
from dlcpd.daemon.condition import Condition

MAX_REASON: Final = 4096  # bytes of the file; a longer one was not written by a daemon
_FLAGS: Final = os.O_CREAT | os.O_TRUNC | os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC


class Cordon:
    """Sets `condition.cordon`. `file` is there while the cordon is kept; None: a private daemon,
    which takes the ranks of its training alone."""

    def __init__(self, condition: Condition, file: Path | None) -> None:
        """Read the file. One that cannot be read counts as a cordon."""
        self._condition, self._file = condition, file
        if file is None:
            return
        try:
            with file.open("rb") as kept:
                text = kept.read(MAX_REASON).decode(errors="replace")
        except FileNotFoundError:
            return
        except OSError as exc:
            text = f"{file}: {exc.strerror}"
        self._condition.cordon = one_line(text.strip())
        log.warning("cordoned", text=self._condition.cordoned, file=file)

    def change(self, request: CordonRequest, uid: int) -> None:
        """Carry out the request of a user. Raises: NotPermitted; then nothing has changed."""
        if self._file is None:
            raise NotPermitted("this is the private daemon of a training, and takes no other jobs")
        if uid not in (0, os.getuid()):
            raise NotPermitted(f"user id {uid} may not cordon dlcpd; its own user and root may")
        try:
            self._keep(self._file, request)
        except OSError as exc:
            raise NotPermitted(
                f"{self._file}: {exc.strerror}: a restart would undo this. Give dlcpd a folder "
                f"that it may write to; --once needs none"
            ) from exc
        self._condition.cordon = one_line(request.why) if request.on else None
        tell = log.warning if request.on else log.info
        tell("cordoned" if request.on else "uncordoned", uid=uid, text=self._condition.cordoned)

    @staticmethod
    def _keep(file: Path, request: CordonRequest) -> None:
        """Raises: OSError; then the file is as it was."""
        if not request.kept:
            return
        if not request.on:
            # A read-only disk refuses this even if there is no file: after `cordon --once`.
            if os.path.lexists(file):
                file.unlink(missing_ok=True)
        else:
            made = file.with_name(f"{file.name}.new")
            try:
                with open(os.open(made, _FLAGS, 0o644), "w", encoding="utf-8") as kept:
                    kept.write(f"{one_line(request.why)}\n")
                made.replace(file)
            except OSError:  # a full disk: an empty file would cordon the next daemon
                with contextlib.suppress(OSError):
                    made.unlink()
                raise
