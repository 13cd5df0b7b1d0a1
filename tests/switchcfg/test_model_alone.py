"""Plans that the planner's own rules would refuse: the model of the switch finds them alone."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import pytest

from switchcfg.errors import Refused
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.state import State
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import AccountingPlatform, Fit, FittingPlatform
from tests.switchcfg.accounted import planned

EOS: Final = """\
hostname leaf
qos map dscp 24 to traffic-class 3
qos profile STORAGE
   qos trust dscp
   uc-tx-queue 3
      LINE
interface Ethernet1/1
   service-profile STORAGE
interface Ethernet2/1
"""
NXOS: Final = """\
hostname leaf
class-map type qos match-any RDMA
  MATCH
policy-map type qos CLASSIFY
  class RDMA
    set qos-group 3
policy-map type queuing OUT
  class type queuing c-out-8q-q3
    LINE
policy-map type network-qos NQ
  class type network-qos c-8q-nq3
    pause pfc-cos 3
system qos
  service-policy type network-qos NQ
interface Ethernet1/1
  priority-flow-control mode on
  service-policy type qos input CLASSIFY
  service-policy type queuing output OUT
interface Ethernet1/2
"""
NVUE: Final = """\
nv set interface swp1-2 type swp
nv set qos mapping default-global trust l2
nv set qos mapping default-global pcp 3 switch-priority 3
nv set qos pfc default-global switch-priority 3
"""


def nxos(line: str = "bandwidth remaining percent 50", match: str = "match dscp 24") -> str:
    return NXOS.replace("LINE", line).replace("MATCH", match)


TAKES: Final = 'queues = [3]\nreplaces = ["STORAGE", "CLASSIFY", "OUT"]'
# (platform, configuration, [keep], words of the refusal)
ALONE: Final = (
    ("eos", EOS.replace("LINE", "random-detect ecn minimum-threshold 2000 segments "
     "maximum-threshold 8000 segments max-mark-probability 20"), TAKES, "DSCP 24-31: mark: ecn"),
    ("eos", EOS.replace("LINE", "bandwidth percent 40"), TAKES, "DSCP 24-31: share: strict"),
    ("nxos", nxos(match="match access-group name RDMA"), TAKES, "not understood: class RDMA"),
    ("nxos", nxos(match="match precedence 3"), TAKES, "not understood: class RDMA"),
    ("nxos", nxos("random-detect minimum-threshold 100 packets maximum-threshold 2000 packets "
     "drop-probability 7 weight 0 ecn"), f"{TAKES}\n[keep.dscp]\n24 = 3", "DSCP 24: mark: random"),
    ("nvue", NVUE, "queues = [3]", "swp1: PCP 3: queue: 3 -> 0"),
    ("nxos", nxos("shape min 1 gbps max 2 gbps"), f"{TAKES}\n[keep.dscp]\n24 = 3", "shaper"),
)  # fmt: skip


@pytest.mark.parametrize(("platform", "text", "keep", "says"), ALONE)
def test_the_model_alone_refuses(
    platform: str, text: str, keep: str, says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = PLATFORMS[platform]
    assert isinstance(kind, FittingPlatform)
    assert isinstance(kind, AccountingPlatform)
    fit = kind.fit

    def careless(intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        return replace(fit(intent, device, rendered, present), problems=())

    def near(device: Device, present: State) -> Sequence[str]:
        return ()

    monkeypatch.setattr(type(kind), "fit", lambda _, *given: careless(*given))
    monkeypatch.setattr(type(kind), "near", lambda _, *given: near(*given))
    monkeypatch.setattr(type(kind), "check", lambda *_: ())
    with pytest.raises(Refused) as caught:
        planned(platform, text, keep)
    assert "kept-treatment: " in str(caught.value)
    assert says in str(caught.value)
