"""A program that imports what ranks, daemons and commands do."""

from importlib import import_module

if __name__ == "__main__":
    for name in ("dlcp_client.numpy", "dlcpd.ctl.main", "dlcpd.daemon.main", "dlcpd.io.engine"):
        import_module(name)
