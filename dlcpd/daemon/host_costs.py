"""The CPU costs of this host's engines: measured once per boot, by a process of its own."""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from dlcpd import starter
from dlcpd.daemon import log
from dlcpd.daemon.child import Child
from dlcpd.daemon.config.effective import engine_configs
from dlcpd.daemon.config.tables import Config
from dlcpd.io import kept_costs
from dlcpd.io.kept_costs import BadCosts
from dlcpd.schedules.network import TYPICAL, Costs

MEASURE: Final = tuple(starter.command("dlcpd.io.own_costs"))
AFTER: Final = 20.0  # seconds until the process starts: a boot, and a job's start, need the CPU
LIMIT: Final = 60.0  # seconds that it may take; a second of CPU time on an idle host


class HostCosts:
    """`present` are the costs in `file`, and TYPICAL until it has some of this boot. Jobs that join
    meanwhile do not wait. None as `file`: a private daemon, which does not live long enough."""

    def __init__(
        self,
        file: Path | None,
        config: Config,
        features: dict[str, Any],
        environ: Mapping[str, str],
    ) -> None:
        """`config` is resolved; `features`: of the engines."""
        self.present = TYPICAL
        self._file, self._config, self._environ = file, engine_configs(config)[0], environ
        self._features = features
        self._work: asyncio.Task[None] | None = None

    def want(self, *, after: float = AFTER, command: Sequence[str] = MEASURE) -> None:
        """Jobs may have a plan: read the file, and have it made if that is needed. Further calls
        have no effect."""
        if self._file is None or self._work is not None:
            return
        measuring = self._measured(self._file, after, command)
        self._work = asyncio.get_running_loop().create_task(measuring)

    def close(self) -> None:
        """The daemon ends: so does the process."""
        if self._work is not None:
            self._work.cancel()

    async def _measured(self, file: Path, after: float, command: Sequence[str]) -> None:
        key = kept_costs.key_of(self._features)
        if self._read(file, key):
            return
        await asyncio.sleep(after)
        try:
            done = await self._run([*command, str(file), key])
        except OSError as exc:
            log.warning("costs_unknown", file=file, text=f"no process to measure them: {exc}")
            return
        if not (done and self._read(file, key)):
            log.warning("costs_unknown", file=file, text="not measured: typical ones are used")

    async def _run(self, command: Sequence[str]) -> bool:
        """Run the process to its end; whether it succeeded. Raises: OSError."""
        environ = starter.environment(self._environ)
        child = Child(command, environ | {"DLCPD_ENGINE_CONFIG": self._config.to_json()}, [])
        try:
            await asyncio.wait_for(child.wait(), LIMIT)
        except TimeoutError:
            return False
        finally:
            child.kill()
        return child.returncode == 0

    def _read(self, file: Path, key: str) -> bool:
        """Take over what the file has. False: nothing of this boot."""
        try:
            found = kept_costs.read(file, key)
        except (BadCosts, OSError) as exc:
            log.warning("costs_damaged", file=file, text=exc)
            return False
        if found is None:
            return False
        self.present = found
        log.info("costs", **named(found))
        return True


def named(costs: Costs) -> dict[str, int]:
    """The measured costs by name, for the status report and the log."""
    return {name: cost for name, cost in costs._asdict().items() if name != "latency_ns"}
