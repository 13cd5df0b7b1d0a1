"""`python -m dlcpd`: the daemon."""

import sys

from dlcpd.daemon.main import main

sys.exit(main())
