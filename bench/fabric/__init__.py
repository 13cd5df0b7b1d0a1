"""A leaf-spine fabric in network namespaces: real queues, real loss, real routes. Root only.

The simplest plan is two hosts on one switch. See `Plan` for what can be asked for, and
`Fabric` for what can be done with it.
"""

from bench.fabric.fabric import Fabric, fabric
from bench.fabric.namespaces import cleanup, unavailable
from bench.fabric.plan import FabricError, Plan

__all__ = ["Fabric", "FabricError", "Plan", "cleanup", "fabric", "unavailable"]
