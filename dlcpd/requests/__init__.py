"""From the message of a client to an operation: checks, task, plan, signature, memory. Pure."""
