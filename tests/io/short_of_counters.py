"""The engine, with counters for a few thousand datagrams only."""

import sys
from unittest.mock import patch

from dlcpd.core.wire.aead import KeySpent, Sealer
from dlcpd.io import engine

COUNTERS = 3000


class Short(Sealer):
    """Of few counters."""

    def _take(self, count: int) -> int:
        if self._counter + count > COUNTERS:
            raise KeySpent
        return super()._take(count)


if __name__ == "__main__":
    with patch("dlcpd.io.udp.encrypted_path.Sealer", Short):
        sys.exit(engine.main())
