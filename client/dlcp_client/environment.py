"""The environment variables of the client; no other file of the client reads them."""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, Self, get_args

from dlcpd.contract.errors import BadConfig

SECRETS: Final = "DLCPD_JOB_SECRET"  # prefix of variables that hold secrets
WARN_AFTER: Final = 5.0  # seconds
# Values of TORCHELASTIC_RUN_ID where no --rdzv-id was given: its default, and that of --standalone.
_MADE_UP: Final = re.compile(r"none|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
# A job's name and number, by the scheduler.
_SCHEDULERS: Final = (
    ("SLURM_JOB_NAME", "SLURM_JOB_ID"),
    ("PBS_JOBNAME", "PBS_JOBID"),
    ("LSB_JOBNAME", "LSB_JOBID"),
)
Pinning = Literal["prefer", "require", "never"]


@dataclass(frozen=True, slots=True)
class Environment:
    """One line per variable."""

    socket: str = ""  # DLCPD_SOCKET: session socket of the host's daemon; "" = private
    config: Path | None = None  # DLCPD_CONFIG: configuration file of a private daemon
    master: str = ""  # MASTER_ADDR: host of the job's store; torchrun sets it
    launch: str = ""  # MASTER_ADDR, MASTER_PORT and `run`, which differ between launches
    # DLCPD_JOB: name of the job in logs and tools; by default TORCHELASTIC_RUN_ID, unless torchrun
    # made that up, else SLURM_JOB_NAME and SLURM_JOB_ID, or those of PBS (PBS_JOBNAME, PBS_JOBID)
    # or LSF (LSB_JOBNAME, LSB_JOBID), else JOB_NAME
    run: str = ""
    secret: str = field(default="", repr=False)  # DLCPD_JOB_SECRET: secret of all ranks
    secret_file: Path | None = None  # DLCPD_JOB_SECRET_FILE: file with that secret
    rank: str = ""  # RANK: rank of this process; launchers set it
    world_size: str = ""  # WORLD_SIZE: number of ranks; launchers set it
    store: Path | None = None  # DLCPD_STORE: folder where ranks without torch find each other
    pinned: Pinning = "prefer"  # DLCPD_PINNED: lock arena pages for GPUs: prefer, require or never
    warn_after: float = WARN_AFTER  # DLCPD_WARN_AFTER: seconds of waiting before a warning
    ledger: Path | None = None  # DLCPD_LEDGER: folder for the ledger of a private daemon
    ledger_inputs: bool = False  # DLCPD_LEDGER_INPUTS: "1" also records contributions
    runtime: str = ""  # XDG_RUNTIME_DIR: folder for the socket of a private daemon, if safe
    temporary: str = ""  # TMPDIR: the next folder for that socket; then /tmp
    # XDG_CACHE_HOME: absolute folder of results of tuning; by default .cache in HOME
    cache: Path | None = None
    share: bool = True  # DLCPD_SHARE: "0" starts a private daemon per rank
    end_with_launcher: bool = False  # DLCPD_END_WITH_LAUNCHER: "1" ends a rank when its parent ends

    @classmethod
    def read(cls, variables: Mapping[str, str] = os.environ) -> Self:
        """The process's environment."""
        config = variables.get("DLCPD_CONFIG", "")
        secret_file = variables.get("DLCPD_JOB_SECRET_FILE", "")
        ledger = variables.get("DLCPD_LEDGER", "")
        store = variables.get("DLCPD_STORE", "")
        return cls(
            socket=variables.get("DLCPD_SOCKET", ""),
            config=Path(config) if config else None,
            secret=variables.get("DLCPD_JOB_SECRET", ""),
            secret_file=Path(secret_file) if secret_file else None,
            ledger=Path(ledger).absolute() if ledger else None,
            ledger_inputs=variables.get("DLCPD_LEDGER_INPUTS", "") == "1",
            master=variables.get("MASTER_ADDR", ""),
            rank=variables.get("RANK", ""),
            world_size=variables.get("WORLD_SIZE", ""),
            store=Path(store) if store else None,
            pinned=_pinning(variables.get("DLCPD_PINNED", "") or "prefer"),
            warn_after=_seconds(variables, "DLCPD_WARN_AFTER", WARN_AFTER),
            runtime=variables.get("XDG_RUNTIME_DIR", ""),
            temporary=variables.get("TMPDIR", ""),
            cache=_cache(variables),
            share=variables.get("DLCPD_SHARE", "") != "0",
            end_with_launcher=variables.get("DLCPD_END_WITH_LAUNCHER", "") == "1",
            run=_run(variables),
            launch=_launch(variables),
        )

    def daemon_options(self) -> list[str]:
        """Further command line options of an embedded daemon."""
        if self.ledger is None:
            return []
        inputs = ["--ledger-inputs"] if self.ledger_inputs else []
        return ["--ledger", str(self.ledger), *inputs]


def _cache(variables: Mapping[str, str]) -> Path | None:
    """The user's folder for caches; None: there is no home. Source: XDG Base Directory
    Specification 0.8, which ignores relative paths."""
    given, home = variables.get("XDG_CACHE_HOME", ""), variables.get("HOME", "")
    if given.startswith("/"):
        return Path(given)
    return Path(home) / ".cache" if home.startswith("/") else None


def _launch(variables: Mapping[str, str]) -> str:
    names = ("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT")
    return ":".join(variables[name] for name in names if variables.get(name))


def _run(variables: Mapping[str, str]) -> str:
    """The name that the user or the scheduler gave the job; "" if none did. Sources: torchrun(1),
    --rdzv-id; "OUTPUT ENVIRONMENT VARIABLES" of sbatch(1); qsub(1B); "Environment variables set for
    job execution" of IBM Spectrum LSF 10.1."""
    run = variables.get("TORCHELASTIC_RUN_ID", "")
    scheduled = [
        "-".join(filter(None, (variables.get(name, "") for name in names))) for names in _SCHEDULERS
    ]
    named = (
        variables.get("DLCPD_JOB", ""),
        "" if _MADE_UP.fullmatch(run) else run,
        *scheduled,
        variables.get("JOB_NAME", ""),
    )
    return next(filter(None, named), "")


def of_daemon(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The variables that a private daemon inherits: all but the job's secret."""
    return {name: value for name, value in variables.items() if not name.startswith(SECRETS)}


def of_shard(variables: Mapping[str, str] = os.environ) -> Mapping[str, str]:
    """The variables that a shard inherits: all. It identifies workers by the job's secret."""
    return variables


def _pinning(text: str) -> Pinning:
    """`text` as a Pinning. Raises: BadConfig."""
    for known in get_args(Pinning):
        if text == known:
            return known  # type: ignore[no-any-return]  # get_args returns Any
    raise BadConfig(f"DLCPD_PINNED={text} is not valid: use one of {', '.join(get_args(Pinning))}")


def _seconds(variables: Mapping[str, str], name: str, default: float) -> float:
    """The variable in seconds, or `default`. Raises: BadConfig."""
    text = variables.get(name, "")
    try:
        seconds = float(text) if text else default
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise BadConfig(f"{name}={text} is not valid: use a number of seconds, 0 or more")
    return seconds
