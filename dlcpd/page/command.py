"""`dlcpctl page`: serves the status page until Ctrl-C."""

import argparse
import ipaddress
import socket
from contextlib import suppress

from dlcpd.cli.output import Output
from dlcpd.contract.errors import DlcpError
from dlcpd.daemon.config.values import address_of, listening
from dlcpd.page.daemon import Daemon
from dlcpd.page.page_token import drawn, from_file
from dlcpd.page.server import is_loopback, server


def page(options: argparse.Namespace, output: Output) -> int:
    """Serve the page. If no daemon answers yet, the page waits for it.

    Raises: BadConfig, AddressUnavailable.
    """
    address = address_of(listening(options.listen, "--listen"))
    token, told = _token(options, loopback=is_loopback(address[0]))
    daemon = Daemon(options.socket)
    with server(address, daemon, token) as served:
        host, port = served.server_address[:2]
        url = f"http://{_reached(str(host))}:{port}/" + (f"#token={token}" if told else "")
        output.document({"url": url, "token": bool(token)})
        output.line(f"{url}  (Ctrl-C ends it)")
        if token:
            output.line(
                "the token and the page cross the network unencrypted: use ssh -L, or a proxy "
                "with TLS"
            )
        _say_whether_there(daemon, output)
        with suppress(KeyboardInterrupt):  # the way to end it
            served.serve_forever(0.1)
    return 0


def _token(options: argparse.Namespace, *, loopback: bool) -> tuple[str, bool]:
    """The token that browsers need, "" = none; and whether the printed URL has it."""
    if options.token_file:
        return from_file(options.token_file), False
    return ("", False) if loopback else (drawn(), True)


def _reached(host: str) -> str:
    """`host` in a URL; this machine's name for the unspecified address."""
    if ipaddress.ip_address(host).is_unspecified:
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host


def _say_whether_there(daemon: Daemon, output: Output) -> None:
    try:
        report = daemon.status()["report"]
    except DlcpError as exc:
        output.line(f"{exc}; the page waits for it")
    else:
        output.line(
            f"of {report['host']}: dlcpd {report['version']}, {len(report['sessions'])} sessions"
        )
