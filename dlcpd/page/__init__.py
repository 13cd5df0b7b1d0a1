"""`dlcpctl page`: a daemon's status for browsers, polled as by `dlcpctl top`."""
