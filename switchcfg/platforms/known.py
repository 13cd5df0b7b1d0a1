"""All platforms, by the name that an intent uses."""

from collections.abc import Mapping
from typing import Final

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
