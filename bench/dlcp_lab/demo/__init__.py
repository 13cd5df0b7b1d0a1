"""`dlcpctl demo`: two models, several transports, and the fate of every segment."""
