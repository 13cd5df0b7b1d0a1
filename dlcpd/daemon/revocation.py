"""Keys that are authorised or revoked while the daemon runs."""

import asyncio
from collections.abc import Callable, Collection
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon import log
from dlcpd.daemon.peers.authorised import Authorised

POLL: Final = 2.0  # seconds; a look at 1,000 files takes 2 ms
MAX_PROBLEMS: Final = 8  # log lines per reading


class KeyWatch:
    """Watches the files of keys; `revoked` gets the keys that are gone."""

    def __init__(self, known: Authorised, revoked: Callable[[Collection[str]], None]) -> None:
        self._known, self._revoked = known, revoked

    def start(self) -> None:
        """Look for changes now and every POLL seconds; on SIGHUP, `look` is called at once."""
        if self._known.folder:
            self.look()
            asyncio.get_running_loop().call_later(POLL, self.start)

    def look(self) -> None:
        """Read the files again; log and apply changes."""
        before = self._known.problems
        found = self._known.read()
        if found.problems != before:
            for problem in found.problems[:MAX_PROBLEMS]:
                log.error("authorised_unreadable", code=BadConfig.code, text=problem)
        if found.added or found.revoked:
            log.info(
                "authorised",
                hosts=self._known.hosts,
                added=len(found.added),
                revoked=len(found.revoked),
            )
        if found.revoked:
            self._revoked(found.revoked)
