"""Platform OpenConfig QoS over gNMI."""
