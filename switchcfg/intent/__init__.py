"""The intent: wanted queues and classes of the switches, from one TOML file."""
