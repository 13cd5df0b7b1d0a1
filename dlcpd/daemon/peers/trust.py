"""The configured key pair of a daemon, and the authorised keys of its peers."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import SecurityTable
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.key_files import read_identity
from dlcpd.daemon.peers.keys import KeyPair


@dataclass(frozen=True, slots=True)
class Trust:
    """`identity`: the file of the key pair; "" = the pair ends with this process."""

    keys: KeyPair
    authorised: Authorised
    identity: str = ""

    @classmethod
    def configured(cls, table: SecurityTable) -> Self:
        """From [security], whose "auto" is resolved.

        Raises: BadConfig naming the file and what to do with it.
        """
        if not table.identity:
            if table.authorised:
                raise BadConfig(
                    f"[security] authorised {table.authorised} without identity: no peer could "
                    f"authorise a key that is another at each start; make one that stays with "
                    f"`dlcpctl keys new`"
                )
            keys = KeyPair.new()
            return cls(keys, Authorised(None, keys.text))
        try:
            keys = read_identity(Path(table.identity)).pair
        except BadConfig as exc:
            raise BadConfig(f"[security] identity {exc}") from exc
        folder = Path(table.authorised) if table.authorised else None
        return cls(keys, Authorised(folder, keys.text), table.identity)

    def report(self) -> dict[str, Any]:
        """For StatusRequest; contains no secret."""
        known = self.authorised
        return {
            "key": self.keys.text,
            "identity": self.identity,
            "authorised": str(known.folder or ""),
            "hosts": known.hosts,
            "problems": list(known.problems[:8]),
        }
