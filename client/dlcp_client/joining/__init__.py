"""Joins a job: from a member of it, or a torch.distributed rank, to a session."""
