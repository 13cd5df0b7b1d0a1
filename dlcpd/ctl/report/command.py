"""`dlcpctl report`: reads the inputs, and writes the HTML file."""

import argparse
from datetime import UTC, datetime
from pathlib import Path

from dlcpd import __version__
from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.errors import BadConfig
from dlcpd.ctl.report.document import document
from dlcpd.ctl.report.inputs import sections


def report(options: argparse.Namespace, output: Output) -> int:
    """Raises: BadConfig, BadLedger."""
    to: Path = options.output
    written = OutputFile("-o", to)
    written.check()
    if to.exists() and any(to.samefile(place) for place in options.runs if place.exists()):
        raise BadConfig(f"-o {to}: is one of the inputs; name another file")
    found = [section for place in options.runs for section in sections(place)]
    names = ", ".join(place.name or str(place) for place in options.runs)
    now = f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC"
    text = document(found, f"made by dlcpctl report {__version__} on {now} from {names}")
    written.write(text)
    for section in found:
        output.line(section.title)
        for sentence in section.sentences:
            output.line(f"  {sentence}")
    output.line(f"{to}: {len(text) // 1000} kB; open it in a browser")
    output.document(
        {
            "file": str(to),
            "sections": [{"title": one.title, "sentences": list(one.sentences)} for one in found],
        }
    )
    return 0
