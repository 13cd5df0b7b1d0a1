"""A leaf-spine fabric in network namespaces: real queues, real loss, real routes. Root only.

The simplest plan is two hosts on one switch. See `Plan` for what can be asked for, and
`Fabric` for what can be done with it.
"""

from dlcp_lab.emulation.fabric import Fabric, fabric
from dlcp_lab.emulation.namespaces import cleanup, unavailable
from dlcp_lab.emulation.plan import FabricError, Plan

__all__ = ["Fabric", "FabricError", "Plan", "cleanup", "fabric", "unavailable"]
