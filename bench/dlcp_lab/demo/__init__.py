"""`dlcpctl demo`: two models, several transports, and what became of every segment."""
