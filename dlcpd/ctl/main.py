"""The command `dlcpctl`; the only module that reads command line and environment.

Exit code: 0 ok, 1 failed or a check did, 2 bad usage, 130 interrupted.
"""

import os
import signal
import sys
from collections.abc import Sequence
from types import FrameType
from typing import Final

from dlcpd.cli.extensions import installed
from dlcpd.cli.grammar import check_needs
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig, DlcpError
from dlcpd.contract.printable import lines
from dlcpd.ctl.arguments import parser
from dlcpd.ipc.standard_output import open_missing

OK: Final = 0
FAILED: Final = 1
USAGE: Final = 2  # argparse's own code for bad usage
INTERRUPTED: Final = 130  # 128 + SIGINT, as a shell reports it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    open_missing()
    options = parser(os.environ, installed()).parse_args(arguments)
    before = signal.signal(signal.SIGTERM, _interrupt)  # so that started processes are stopped
    try:
        check_needs(options.full_name, options.needs)
        code: int = options.run(options, Output(options.json))
    except BadConfig as exc:
        return _complain(str(exc), USAGE)
    except DlcpError as exc:
        return _complain(f"{exc} [{exc.code}]", FAILED)
    except KeyboardInterrupt:
        return _complain("interrupted; everything it started is stopped", INTERRUPTED)
    except BrokenPipeError:  # `dlcpctl status | head`
        sys.stderr.close()  # else the interpreter reports an error when it flushes at exit
        return FAILED
    finally:
        signal.signal(signal.SIGTERM, before)
    return code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _complain(text: str, code: int) -> int:
    sys.stderr.write(f"dlcpctl: {lines(text)}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
