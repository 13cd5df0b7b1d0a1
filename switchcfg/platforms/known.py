"""All platforms, by the name that an intent uses."""

from collections.abc import Mapping
from typing import Final

from switchcfg.plan.queues import Abilities
from switchcfg.platforms import eos
from switchcfg.platforms.eos import Eos
from switchcfg.platforms.junos import platform as junos
from switchcfg.platforms.junos.platform import Junos
from switchcfg.platforms.linux import platform as linux
from switchcfg.platforms.linux.platform import Linux
from switchcfg.platforms.nvue import platform as nvue
from switchcfg.platforms.nvue.platform import Nvue
from switchcfg.platforms.nxos import platform as nxos
from switchcfg.platforms.nxos.platform import Nxos
from switchcfg.platforms.openconfig import platform as openconfig
from switchcfg.platforms.openconfig.platform import OpenConfig
from switchcfg.platforms.platform import Platform
from switchcfg.platforms.sonic import wanted as sonic
from switchcfg.platforms.sonic.platform import Sonic

PLATFORMS: Final[Mapping[str, Platform]] = {
    each.name: each for each in (Eos(), Junos(), Linux(), Nvue(), Nxos(), OpenConfig(), Sonic())
}

# The abilities of each platform.
ABLE: Final[Mapping[str, Abilities]] = {
    Eos.name: eos.ABLE, Junos.name: junos.ABLE, Linux.name: linux.ABLE, Nvue.name: nvue.ABLE,
    Nxos.name: nxos.ABLE, OpenConfig.name: openconfig.ABLE, Sonic.name: sonic.ABLE,
}  # fmt: skip
