"""Plans trees over the network that a job has: topology files, bounds, packings, classes of hosts.

Pure functions for control and `dlcpctl`; engines get finished trees and never import this package.
"""
