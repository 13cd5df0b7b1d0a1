"""`dlcpctl bench`: operations and trainings of dlcpd and Gloo by turns."""
