"""`dlcpctl bench`: operations and trainings over dlcpd and Gloo, in alternation."""
