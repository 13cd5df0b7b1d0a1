"""The ledger of losses: a file per rank of what was waived, and results computed again by it."""
