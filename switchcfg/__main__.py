"""`python -m switchcfg` is the command `switchcfg`."""

import sys

from dlcpd.starter import switchcfg

if __name__ == "__main__":
    sys.exit(switchcfg())
