"""Tests whether the network honours DSCP and ECN: probes on hosts, and a verdict."""
