"""Inputs of `dlcpctl report`, recognised by their content, not by their names."""

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from dlcpd.cli.extensions import reader
from dlcpd.contract.errors import BadConfig
from dlcpd.ctl.report.history import PREFIX, of_windows
from dlcpd.ctl.report.losses import of_folder
from dlcpd.ctl.report.parts import Section
from dlcpd.ctl.report.steps import of_trace
from dlcpd.inspection.timeline import FIRST_PROCESS

MAX_FILE: Final = 1 << 28  # bytes of a file, unpacked; a trace of 1,000 steps has 20 MB
READ: Final = (
    "what --json of an installed benchmark writes; a file of dlcpctl trace; metrics of a "
    "training, as handle.report_to(json_lines(FILE)) writes them; a folder with ledgers"
)


def sections(place: Path) -> list[Section]:
    """The sections for the file or folder at `place`. Raises: BadConfig, BadLedger."""
    if place.is_dir():
        return of_folder(place)
    found = _parsed(place)
    kind, make = _kind(found)
    if make is None and kind:
        raise BadConfig(f"{place}: looks like {kind}, and no installed package reads it")
    if make is None:
        raise BadConfig(f"{place}: is not a file that report can read. It reads {READ}")
    try:
        return [make(found)]
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, ZeroDivisionError) as exc:
        raise BadConfig(
            f"{place}: looks like {kind}, and is damaged or of another version "
            f"({type(exc).__name__}: {exc})"
        ) from exc


def _kind(found: Any) -> tuple[str, Callable[[Any], Section] | None]:
    if isinstance(found, dict):
        if isinstance(found.get("command"), str):
            return "the JSON of a benchmark", reader(found["command"])
        events = found.get("traceEvents")
        if isinstance(events, list) and any(
            isinstance(e, dict) and isinstance(e.get("pid"), int) and e["pid"] >= FIRST_PROCESS
            for e in events
        ):
            return "a file of dlcpctl trace", of_trace
        found = [found]
    if isinstance(found, list) and found and all(map(_is_window, found)):
        return "metrics of a training", lambda it: of_windows(it if isinstance(it, list) else [it])
    return "", None


def _is_window(row: Any) -> bool:
    return isinstance(row, dict) and {"steps", "bytes"} <= {k.removeprefix(PREFIX) for k in row}


def _parsed(place: Path) -> Any:
    """JSON, or lines of JSON as a list. Raises: BadConfig."""
    text = _text(place)
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    except (ValueError, RecursionError) as exc:
        raise BadConfig(f"{place}: is not JSON ({exc}). report reads {READ}") from exc


def _text(place: Path) -> str:
    """Raises: BadConfig."""
    try:
        with (gzip.open if place.suffix == ".gz" else open)(place, "rb") as file:
            raw: bytes = file.read(MAX_FILE + 1)
    except (OSError, EOFError) as exc:
        why = getattr(exc, "strerror", None) or exc
        raise BadConfig(f"{place}: cannot be read: {why}") from exc
    if len(raw) > MAX_FILE:
        raise BadConfig(f"{place}: has more than {MAX_FILE} B")
    return raw.decode("utf-8", "replace")
