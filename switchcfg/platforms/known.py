"""All platforms, by the name that an intent uses."""

from collections.abc import Mapping
from pkgutil import resolve_name
from typing import Final

from switchcfg.intent.known import KNOWN
from switchcfg.platforms.platform import Platform

PLATFORMS: Final[Mapping[str, Platform]] = {
    name: resolve_name(each.platform)() for name, each in KNOWN.items()
}
