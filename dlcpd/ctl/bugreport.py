"""`dlcpctl bugreport`: what a person needs to look into a problem, in one archive.

It needs no rights and no daemon: it says what it could not read. No part may lose another.
"""

import argparse
import io
import json
import os
import platform
import sys
import tarfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.contract.printable import one_line
from dlcpd.ctl.outside import first_bytes, last_bytes, lines_of_journal, said_by
from dlcpd.ctl.redaction import REMOVED, Redaction, names_secret
from dlcpd.ctl.status import status_lines
from dlcpd.daemon.config.effective import resolved, tables_text, to_toml
from dlcpd.daemon.config.file import load
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.versions import text as versions_text
from dlcpd.doctor.checks import local_rows
from dlcpd.doctor.rows import summary
from dlcpd.doctor.rows import text as rows_text
from dlcpd.inspection.conversation import Conversation
from dlcpd.inspection.recording import record
from dlcpd.inspection.report import alarms

FOLDER: Final = "dlcpd-bugreport"  # in the archive
USUAL: Final = Path("/etc/dlcpd/dlcpd.toml")
LEDGER: Final = 100  # rows in the status
MOST_DOCUMENT: Final = 32 << 20  # bytes; the longest report of a daemon
TRACE_SECONDS: Final = 10.0
PRIVATE: Final = 0o600
SHORTEST_KEY: Final = 32  # characters of a key in a file of keys; the name of its host stays
PREFIXES: Final = (
    "DLCPD_",
    "SLURM_JOB",
    "TORCHELASTIC_",
    "MASTER_",
    "RANK",
    "WORLD_SIZE",
    "TMPDIR",
)
UNIT_STATE: Final = (
    "Id,LoadState,ActiveState,SubState,Result,NRestarts,ExecMainCode,ExecMainStatus,"
    "ExecMainStartTimestamp,ExecMainExitTimestamp,MainPID,MemoryCurrent,MemoryPeak,CPUUsageNSec,"
    "TasksCurrent,FragmentPath,DropInPaths,LimitNOFILE,OOMScoreAdjust,NeedDaemonReload"
)


def bugreport(environ: Mapping[str, str], options: argparse.Namespace, output: Output) -> int:
    """Collect, and write the archive with mode 0600. A part that cannot be read is a line of the
    text and of `contents.txt` in the archive.

    Raises: BadConfig if the archive cannot be written.
    """
    file = options.output or Path(f"{FOLDER}-{one_line(platform.node())}.tar.gz".replace("/", "-"))
    to = OutputFile("-o", file)
    to.check()
    collected = _Collection(environ, options)
    archive = collected.archive(output)
    to.write_bytes(archive, PRIVATE)
    for name, why in collected.missing.items():
        output.line(f"without {name}: {why}")
    output.line(
        f"{file}: {len(archive)} B, {len(collected.parts)} files; secrets are removed as far as "
        "their names or forms say so: look at it before you send it (docs/operations.md)"
    )
    found = {"file": str(file), "parts": sorted(collected.parts), "missing": collected.missing}
    output.document(found)
    return 0


@dataclass(slots=True)
class _Collection:
    """The parts of a report, by their names in the archive."""

    environ: Mapping[str, str]
    options: argparse.Namespace
    parts: dict[str, bytes] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    file: Path | None = None  # its configuration
    config: Config = field(default_factory=Config)  # as that file has it
    report: dict[str, Any] | None = None  # of the daemon

    def archive(self, output: Output) -> bytes:
        """All parts as a tar.gz."""
        found = dict[str, Any]()
        for name, made in self._sources():
            output.progress(name)
            try:
                found[name] = made()
            except Exception as exc:  # a part that fails must not lose another
                self.missing[name] = f"{type(exc).__name__}: {' '.join(str(exc).split())}"
        redaction = Redaction(self._secrets())
        self.missing = {name: redaction.text(why) for name, why in self.missing.items()}
        found["contents.txt"] = "".join(
            [f"{name}\n" for name in found]
            + [f"without {name}: {why}\n" for name, why in self.missing.items()]
        )
        self.parts = {name: _bounded(redaction, part) for name, part in found.items()}
        return _packed(self.parts)

    def _sources(self) -> Iterator[tuple[str, Callable[[], Any]]]:
        """Names, and functions that return text or a JSON-like map, in the order in which one
        needs another's result."""
        unit = self.options.unit.removesuffix(".service")
        yield "versions.txt", _versions
        yield "configuration.toml", self._configuration
        yield "status.json", self._status
        yield "status.txt", lambda: "\n".join(status_lines(self._answered()))
        yield "alarms.txt", lambda: "\n".join(alarms(self._answered()))
        yield "running-configuration.toml", lambda: tables_text(self._answered()["config"])
        if self.options.steps:
            yield "trace.json", self._trace
        yield "doctor.txt", self._doctor
        yield "log.txt", self._log
        yield (
            "units.txt",
            partial(
                said_by,
                "systemctl",
                "show",
                f"--property={UNIT_STATE}",
                "--",
                unit,
                f"{unit}.socket",
            ),
        )
        yield "environment.txt", self._environment

    def _configuration(self) -> str:
        self.file = self.options.config or (USUAL if USUAL.exists() else None)
        if self.file is None:
            return f"# {USUAL} does not exist, and --config names no file\n"
        self.config = load(self.file)
        return to_toml(self.config)

    def _status(self) -> dict[str, Any]:
        with Conversation(self._socket) as daemon:
            self.report = daemon.status(LEDGER)
        return self.report

    @property
    def _socket(self) -> str | None:
        """None: the usual one, or that of a private daemon."""
        named: str | None = self.options.socket
        given = self.config.daemon.socket
        return named or (None if given == Config().daemon.socket else given)

    def _answered(self) -> dict[str, Any]:
        """Raises: DaemonUnavailable if the daemon did not answer."""
        if self.report is None:
            raise DaemonUnavailable("the daemon did not answer")
        return self.report

    def _trace(self) -> dict[str, Any]:
        if not self._answered()["sessions"]:
            return {}
        with Conversation(self._socket) as daemon:
            return record(daemon, self.options.steps, TRACE_SECONDS).document

    def _doctor(self) -> str:
        socket = self._socket or self.config.daemon.socket
        rows = list(local_rows(self.config, self.file, socket))
        return f"{rows_text(rows)}\n{summary(rows)}\n"

    def _log(self) -> str:
        named: Path | None = self.options.log
        return last_bytes(named) if named else lines_of_journal(self.options.unit)

    def _environment(self) -> str:
        """Variables that the programs read; of secret ones, only the name."""
        return "".join(
            f"{name}={REMOVED if names_secret(name) else json.dumps(value)}\n"
            for name, value in sorted(self.environ.items())
            if name.startswith(PREFIXES)
        )

    def _secrets(self) -> Iterator[str]:
        """Values that may not be in the archive wherever they stand, as far as they can be read."""
        yield from (value for name, value in self.environ.items() if names_secret(name))
        files = [self.environ.get("DLCPD_JOB_SECRET_FILE", "")]
        try:
            files.append(resolved(self.config).security.identity)
        except Exception:  # a host whose addresses cannot be read
            files.append("")
        if self.report is not None:  # that daemon may have another file
            files.append(self.report.get("config", {}).get("security", {}).get("identity", ""))
        for name in filter(None, files):
            try:
                text = first_bytes(Path(name))
            except OSError:
                continue  # what cannot be read cannot get into the archive either
            yield text.strip()
            yield from (part for part in text.split('"')[1::2] if len(part) >= SHORTEST_KEY)
        if self.report is not None:
            yield str(self.report["security"]["key"])


def _versions() -> str:
    names = os.uname()
    return (
        f"{versions_text('dlcpctl')}\nPython {sys.version}\n"
        f"{names.sysname} {names.release} {names.version} {names.machine}, host {names.nodename}\n"
        f"collected {time.strftime('%Y-%m-%dT%H:%M:%S%z')}, user id {os.getuid()}\n"
    )


def _bounded(redaction: Redaction, part: Any) -> bytes:
    """Text, or JSON of a map, at most MOST_DOCUMENT bytes and a mark where it was cut."""
    if isinstance(part, str):
        text = redaction.text(part)
    else:
        text = json.dumps(redaction.document(part), indent=1)
    data = text.encode(errors="replace")
    return data if len(data) <= MOST_DOCUMENT else data[:MOST_DOCUMENT] + b"\n[cut]\n"


def _packed(parts: Mapping[str, bytes]) -> bytes:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, data in parts.items():
            entry = tarfile.TarInfo(f"{FOLDER}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), PRIVATE, int(time.time())
            archive.addfile(entry, io.BytesIO(data))
    return packed.getvalue()
