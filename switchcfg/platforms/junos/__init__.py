"""Platform Junos and Junos EVO."""
