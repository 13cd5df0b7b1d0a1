"""All platforms, by the name that an intent uses."""

from collections.abc import Mapping
from typing import Final

from switchcfg.plan.queues import Abilities
from switchcfg.platforms import eos, junos, linux, nvue, nxos, openconfig, sonic
from switchcfg.platforms.eos import Eos
from switchcfg.platforms.junos import Junos
from switchcfg.platforms.linux import Linux
from switchcfg.platforms.nvue import Nvue
from switchcfg.platforms.nxos import Nxos
from switchcfg.platforms.openconfig import OpenConfig
from switchcfg.platforms.platform import Platform
from switchcfg.platforms.sonic import Sonic

PLATFORMS: Final[Mapping[str, Platform]] = {
    each.name: each for each in (Eos(), Junos(), Linux(), Nvue(), Nxos(), OpenConfig(), Sonic())
}

# The abilities of each platform.
ABLE: Final[Mapping[str, Abilities]] = {
    Eos.name: eos.ABLE, Junos.name: junos.ABLE, Linux.name: linux.ABLE, Nvue.name: nvue.ABLE,
    Nxos.name: nxos.ABLE, OpenConfig.name: openconfig.ABLE, Sonic.name: sonic.ABLE,
}  # fmt: skip
