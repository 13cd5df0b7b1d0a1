"""The command `switchcfg`, and how changes reach devices step by step."""
