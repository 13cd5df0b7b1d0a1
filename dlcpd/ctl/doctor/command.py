"""The command `dlcpctl doctor`."""

import argparse
from pathlib import Path

from dlcpd.ctl.doctor.checks import local_rows
from dlcpd.ctl.doctor.rows import Row, Verdict, summary, text
from dlcpd.ctl.output import Output
from dlcpd.daemon.config import Config, load


def doctor(options: argparse.Namespace, output: Output) -> int:
    """Look at this host. Exit code 1 where a row says fail.

    Raises: BadConfig.
    """
    file: Path | None = options.config
    config = load(file) if file else Config()
    rows = list(local_rows(config, file, options.socket or config.daemon.socket))
    return _shown(rows, output)


def _shown(rows: list[Row], output: Output) -> int:
    output.line(text(rows))
    output.line(summary(rows))
    output.document([row.document() for row in rows])
    return 1 if any(row.verdict is Verdict.FAIL for row in rows) else 0
