"""The ledger of losses: a file per rank of what was given up, and results computed again by it."""
