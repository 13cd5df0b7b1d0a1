"""TCP in virtual time, for comparison: the ring of Gloo over connections of CUBIC or BBR."""
