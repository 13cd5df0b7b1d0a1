"""`python -m switchcfg` is the command `switchcfg`."""

import sys

from switchcfg.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
