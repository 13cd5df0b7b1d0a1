"""The command `switchcfg`: its options, its output, and the workflow of a change."""
