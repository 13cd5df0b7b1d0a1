"""The trainings of `dlcpctl demo` and `dlcpctl bench training`: tasks, loop, results."""
