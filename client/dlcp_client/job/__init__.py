"""Rendezvous: the ranks of a job find each other and agree before the first operation."""
