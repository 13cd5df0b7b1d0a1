"""The file in which a host keeps the CPU costs of its engines, by what they depend on."""

from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec

from dlcpd import __version__
from dlcpd.ipc.held_folder import holding
from dlcpd.schedules.network import Costs

MOST_BYTES: Final = 4096  # of the file; a longer one was not written here
BOOT: Final = Path("/proc/sys/kernel/random/boot_id")
CPUS: Final = Path("/proc/cpuinfo")


class BadCosts(ValueError):
    """The file has no costs; the text says why."""


class KeptCosts(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Content of the file. `key`: see `key_of`."""

    key: str
    costs: Costs


def key_of(features: dict[str, Any], boot: Path = BOOT, cpus: Path = CPUS) -> str:
    """What the costs depend on: this boot, the CPU's model, the version, and the engine's features.
    A file that cannot be read counts as empty."""
    parts = [_text(boot).strip(), _model(_text(cpus)), __version__]
    parts += [f"{name} {features[name]}" for name in sorted(features)]
    return blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def read(file: Path, key: str) -> Costs | None:
    """The costs in the file; None if there is no file, or one of another boot, CPU or version.

    Raises: BadCosts if the file is damaged; OSError if it cannot be read, or is another user's.
    """
    try:
        with holding(file, shared=True) as (folder, name):
            data = folder.read(name, MOST_BYTES + 1)
    except FileNotFoundError:
        return None
    if len(data) > MOST_BYTES:
        raise BadCosts(f"is longer than {MOST_BYTES} bytes")
    try:
        kept = msgspec.json.decode(data, type=KeptCosts)
    except (msgspec.DecodeError, UnicodeDecodeError) as exc:
        raise BadCosts(f"has no costs: {exc}") from None
    return kept.costs if kept.key == key else None


def write(file: Path, key: str, costs: Costs) -> None:
    """Keep the costs: a reader sees the old file or this. Raises: OSError."""
    with holding(file, shared=True) as (folder, name):
        folder.replace(name, msgspec.json.encode(KeptCosts(key, costs)))


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _model(cpus: str) -> str:
    """The name of the first CPU; of a machine that names none, all that is said of it."""
    names = (line.partition(":")[2] for line in cpus.splitlines() if line.startswith("model name"))
    return next(names, "").strip() or cpus.partition("\n\n")[0]
