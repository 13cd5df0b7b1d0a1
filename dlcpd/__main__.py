"""`python -m dlcpd`: the daemon."""

import sys

from dlcpd.starter import dlcpd

sys.exit(dlcpd())
