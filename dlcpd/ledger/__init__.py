"""The ledger of losses: a record per rank of waived segments, and the replay of results by it."""
