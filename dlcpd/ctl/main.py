"""The command `dlcpctl`. Reads command line and environment; nobody else does.

Exit code: 0 ok, 1 failed or a promise broken, 2 bad usage, 130 interrupted.
"""

import argparse
import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from dlcp_lab.ranks.processes import has_torch
from dlcpd.contract.errors import BadConfig, DlcpError
from dlcpd.ctl.arguments import parser
from dlcpd.ctl.output import Output

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # argparse's own code for bad usage
INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell reports it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = parser(os.environ).parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)  # so that what was started is stopped
    try:
        _check_torch(options)
        code: int = options.run(options, Output(options.json))
    except BadConfig as exc:
        return _complain(str(exc), USAGE)
    except DlcpError as exc:
        return _complain(f"{exc} [{exc.code}]", FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted; everything it started is stopped", INTERRUPTED)
    except BrokenPipeError:  # `dlcpctl status | head`
        sys.stderr.close()  # or the interpreter complains when it flushes at its end
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, before)
    return code


def _check_torch(options: argparse.Namespace) -> None:
    """Raises: BadConfig."""
    if options.needs_torch and not has_torch():
        raise BadConfig(
            f"{options.command} starts training processes and needs torch, which {sys.executable} "
            f"does not have: pip install 'dlcpd[client]'"
        )


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"dlcpctl: {text}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
