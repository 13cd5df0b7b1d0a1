"""The paths of a flow: which of them work, how much and how fast each may carry, and their MTU."""
