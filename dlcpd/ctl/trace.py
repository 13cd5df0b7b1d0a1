"""`dlcpctl trace`: records some steps of a daemon's sessions, and writes a timeline."""

import argparse
import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.errors import BadConfig
from dlcpd.inspection.conversation import Conversation
from dlcpd.inspection.recording import EPOCH, record
from dlcpd.inspection.timeline import Row, merged


def trace(options: argparse.Namespace, output: Output) -> int:
    """Record and write. Exit code 1 if fewer steps came than were asked for."""
    to = OutputFile("-o", options.output)
    to.check()
    if options.join:
        ours, profile = options.join
        return _join(ours, profile, to, output)
    with Conversation(options.socket) as daemon:
        output.progress(f"recording {options.steps} steps, for at most {options.timeout} s")
        recorded = record(daemon, options.steps, options.timeout)
    _write(to, recorded.document)
    found = {
        "file": str(options.output),
        "steps": recorded.steps,
        "events": recorded.events,
        "full": recorded.full,
    }
    output.line(
        f"{found['steps']} steps, {found['events']} events: {options.output}; "
        f"open it at ui.perfetto.dev, or with chrome://tracing"
    )
    if recorded.full:
        output.line("the recording was full before its end: ask for fewer steps")
    if recorded.steps < options.steps:
        output.line(
            "a step is complete when the first operation of a session comes again: check that a "
            "training runs here, or wait longer with --timeout"
        )
    output.document(found)
    return int(recorded.steps < options.steps)


def _join(ours: Path, profile: Path, to: OutputFile, output: Output) -> int:
    """Write a trace of dlcpctl and a profile of torch.profiler as one file."""
    trace_, theirs = _read(ours), _read(profile)
    about = trace_.get("otherData")
    epoch = about.get(EPOCH) if isinstance(about, dict) else None
    if not isinstance(epoch, int):
        raise BadConfig(f"--join {ours}: is not a file of dlcpctl trace; name that file first")
    document = merged(trace_["traceEvents"], epoch, theirs)
    _write(to, document)
    output.line(f"{len(document['traceEvents'])} events: {to.path}")
    output.document({"file": str(to.path), "events": len(document["traceEvents"])})
    return 0


def _read(file: Path) -> Row:
    """A file in the Trace Event Format. Raises: BadConfig."""
    open_: Callable[..., Any] = gzip.open if file.suffix == ".gz" else open
    try:
        with open_(file, "rt", encoding="utf-8") as text:
            found: Any = json.load(text)
    except (OSError, ValueError) as exc:
        raise BadConfig(f"--join {file}: cannot be read: {exc}") from exc
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise BadConfig(f"--join {file}: has no list of traceEvents")
    return found


def _write(to: OutputFile, document: Row) -> None:
    """Raises: BadConfig."""
    to.write(json.dumps(document) + "\n")
