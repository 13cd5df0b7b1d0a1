"""Results of measurements: one file per program or training, ranks and versions, of this user."""

import logging
from dataclasses import dataclass
from hashlib import blake2b
from math import isfinite, log2
from pathlib import Path
from typing import Annotated, Final

import msgspec
import torch
from torch import Tensor

from dlcp_client.environment import Environment
from dlcp_client.fused.language.costs import Rates
from dlcp_client.fused.language.execution import every
from dlcp_client.group import Group
from dlcpd import __version__
from dlcpd.contract.errors import BadConfig, RanksDisagree
from dlcpd.ipc.held_folder import PRIVATE_FOLDER, HeldFolder

CLASS: Final = 1e9  # bit/s; other classes double or halve it. No usual rate is at a border of two
FORMAT: Final = "1"  # of files; another one has other names
MOST_BYTES: Final = 64 << 10  # of a file; one has a few hundred bytes per candidate
MOST_FILES: Final = 500  # beyond, the oldest goes
_log: Final = logging.getLogger("dlcp_client")
_said: Final[set[str]] = set()

Positive = Annotated[float, msgspec.Meta(gt=0)]
NotNegative = Annotated[float, msgspec.Meta(ge=0)]


class Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A candidate. Seconds of a run; `measured` 0: it was not among the best of the model."""

    title: Annotated[str, msgspec.Meta(max_length=200)]
    predicted: NotNegative
    measured: NotNegative = 0.0


class Result(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was measured, and the choice: a number of `rows`."""

    rates: Rates
    rows: Annotated[list[Row], msgspec.Meta(min_length=1, max_length=100)]
    chosen: Annotated[int, msgspec.Meta(ge=0)]
    seconds: Positive  # of the quickest run of the chosen candidate

    @property
    def title(self) -> str:
        """The chosen candidate's."""
        return self.rows[self.chosen].title


def decoded(data: bytes) -> Result:
    """A file's content. Raises: ValueError saying what is wrong."""
    found = msgspec.json.decode(data, type=Result)  # its errors are ValueErrors
    if found.chosen >= len(found.rows):
        raise ValueError(f"it chooses row {found.chosen} of {len(found.rows)}")
    rates = found.rates
    numbers = [getattr(rates, name) for name in Rates.__dataclass_fields__]
    numbers += [found.seconds, *(x for row in found.rows for x in (row.predicted, row.measured))]
    if not all(isfinite(one) and one >= 0 for one in numbers) or not min(
        rates.link_bps, rates.memory_bytes_per_s
    ):
        raise ValueError("a time or a rate is not a positive number")
    return found


def key_of(group: Group[Tensor], what: str, text: str, options: str) -> str:
    """What a result holds for: equal on all ranks, which call it alike. `text` has the program, or
    the training, with its sizes; of hosts count the number, their ranks and their CPUs, not their
    names; of the network the class of its slowest link. `what` and `options`: for the error;
    options count as well.

    Raises: RanksDisagree if ranks have other versions, texts or options.
    """
    told = "\n".join([*_here(), "" if group.rank else _link(group)])
    hosts = [one.decode().split("\n", 2) for one in every(group, told.encode())]
    names = [host for host, *_ in hosts]
    place = [f"{names.index(host)} {cpu} {link}" for host, cpu, link in hosts]
    parts = [FORMAT, __version__, torch.__version__, options, text, *place]
    key = blake2b("\n".join(parts).encode(), digest_size=16)
    if len(set(every(group, key.digest()))) > 1:
        raise RanksDisagree(
            f"ranks tune {what} with other versions of dlcpd ({__version__} here) or torch "
            f"({torch.__version__}), or {options}: give all the same"
        )
    return key.hexdigest()


def _link(group: Group[Tensor]) -> str:
    """The class of the slowest link of the job's network; empty: the daemon knows none."""
    session = group.session
    if session.hosts == 1:
        return ""
    rows = session.status().get("sessions", [])
    rates = [row.get("least_bps", 0) for row in rows if row["session"] == session.number]
    return str(round(log2(rates[0] / CLASS))) if any(rates) else ""


def _here() -> tuple[str, str]:
    """The name of this boot of the host, and its processor."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    models = [line.split(":", 1)[-1].strip() for line in lines if line.startswith("model name")]
    return boot, f"{models[0] if models else ''} x {len(models)}"


@dataclass(frozen=True, slots=True)
class Results:
    """The folder of results. An unusable one is said once, and then nothing is kept."""

    folder: Path | None

    @classmethod
    def of_user(cls, folder: str | Path | None = None) -> "Results":
        """`folder`: by default "dlcpd/tuning" in the user's cache."""
        if not isinstance(folder, str | Path | None):
            raise BadConfig(f"folder={folder!r:.40} is not valid: give a path")
        if folder is not None:
            return cls(Path(folder))
        cache = Environment.read().cache
        return cls(cache / "dlcpd" / "tuning" if cache is not None else None)

    def shared(self, group: Group[Tensor], key: str) -> Result | None:
        """The result of the first rank that has one. Every rank calls it alike."""
        for found in every(group, self._read(key)):
            if found:
                try:
                    return decoded(found)
                except ValueError:  # of a rank with another version: it is measured anew
                    return None
        return None

    def keep(self, key: str, result: Result) -> None:
        """Write the result; a reader sees the old one or this."""
        if self.folder is None:
            return
        try:
            with HeldFolder.open(self.folder, make=PRIVATE_FOLDER) as folder:
                names = [name for name in folder.names() if name.endswith(".json")]
                if len(names) >= MOST_FILES and _name(key) not in names:
                    folder.remove(min(names, key=lambda name: folder.status(name).st_mtime))
                folder.replace(_name(key), msgspec.json.encode(result))
        except OSError as error:
            _say(f"the result of tuning is not kept in {self.folder}: {error}")

    def _read(self, key: str) -> bytes:
        """The content of a valid file; else empty."""
        if self.folder is None:
            return b""
        try:
            with HeldFolder.open(self.folder) as folder:
                data = folder.read(_name(key), MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise ValueError(f"it has more than {MOST_BYTES} bytes")
            decoded(data)
        except FileNotFoundError:
            return b""
        except (OSError, ValueError) as error:
            _say(
                f"the result of tuning {self.folder / _name(key)} is ignored, and measured anew: "
                f"{error}"
            )
            return b""
        return data


def _name(key: str) -> str:
    return f"{key}.json"


def _say(text: str) -> None:
    if text not in _said:
        _said.add(text)
        _log.warning(text)
