"""Ranks that fork from `tests.forking` fork their daemons, from what this module imports."""

from tests.starts.forking import FORKING
from tests.starts.images import DAEMON, load

load(DAEMON)
assert not FORKING.servers
