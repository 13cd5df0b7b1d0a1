"""Models of switches: the treatment of every code point on every port, from a configuration."""
