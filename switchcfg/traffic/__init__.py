"""Whether the network honours tags: probes on hosts, and the judgement of what arrived."""
