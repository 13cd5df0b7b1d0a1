"""The command `dlcpctl doctor`."""

import argparse
from pathlib import Path

from dlcpd.cli.colour import by_verdict
from dlcpd.cli.output import Output
from dlcpd.daemon.config.effective import resolved
from dlcpd.daemon.config.file import load
from dlcpd.daemon.config.tables import Config
from dlcpd.doctor.checks import local_rows
from dlcpd.doctor.listener import ProbeListener
from dlcpd.doctor.peer import peer_rows
from dlcpd.doctor.rows import Row, Verdict, summary, text


def doctor(options: argparse.Namespace, output: Output) -> int:
    """Run the checks, and print their rows. Exit code 1 if a row says fail.

    Raises: BadConfig, AddressUnavailable.
    """
    file: Path | None = options.config
    config = load(file) if file else Config()
    if options.listen:
        return _listen(resolved(config), options, output)
    rows = list(local_rows(config, file, options.socket or config.daemon.socket))
    for host in options.peer:
        output.progress(f"checking {host}")
        rows += peer_rows(resolved(config), host, options.port)
    return _shown(rows, output)


def _shown(rows: list[Row], output: Output) -> int:
    output.line(text(rows), by_verdict)
    output.line(summary(rows))
    output.document([row.document() for row in rows])
    return 1 if any(row.verdict is Verdict.FAIL for row in rows) else 0


def _listen(config: Config, options: argparse.Namespace, output: Output) -> int:
    listener = ProbeListener(config, options.port)
    try:
        address, port = listener.address
        output.line(f"answers for {options.seconds} s at TCP {address} port {port}")
        for end in listener.ends:
            what = "control, TCP" if end.path < 0 else f"path {end.path}, UDP"
            held = " (a daemon has the configured one)" if end.held else ""
            output.line(f"  {what} {end.address} port {end.port}{held}")
        listener.serve(options.seconds)
    finally:
        listener.close()
    output.document({"seconds": options.seconds})
    return 0
