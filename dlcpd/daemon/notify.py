"""sd_notify: tells a service manager when the daemon serves and when it stops."""

import socket


def notify(target: str, state: str) -> None:
    """Send `state`, such as "READY=1", to NOTIFY_SOCKET's value; empty: nobody asked.

    A manager that does not listen is not our failure: the datagram is then dropped.
    Source: sd_notify(3).
    """
    if not target:
        return
    address = "\0" + target[1:] if target.startswith("@") else target  # @: abstract namespace
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as sock:
        try:
            sock.sendto(state.encode(), socket.MSG_DONTWAIT, address)
        except OSError:
            return
