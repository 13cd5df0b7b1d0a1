"""`dlcpctl report`: what a training or a benchmark left, as one HTML file to look at."""
