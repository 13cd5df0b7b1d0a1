"""A leaf-spine fabric in network namespaces: real queues, real loss, real routes. Root only.

The simplest plan is two hosts on one switch. `Plan` has the properties of a fabric, `Fabric` the
operations on it.
"""

from dlcp_lab.emulation.fabric import Fabric, fabric
from dlcp_lab.emulation.namespaces import cleanup, unavailable
from dlcp_lab.emulation.plan import FabricError, Plan

__all__ = ["Fabric", "FabricError", "Plan", "cleanup", "fabric", "unavailable"]
