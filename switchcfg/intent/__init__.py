"""What the network is to do: one TOML file, checked as a whole."""
