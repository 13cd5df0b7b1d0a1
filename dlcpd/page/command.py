"""`dlcpctl page`: serves the status page until Ctrl-C."""

import argparse
import ipaddress
import socket
from contextlib import suppress

from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig, DlcpError
from dlcpd.daemon.config.values import address_of, listening
from dlcpd.page.daemon import Daemon
from dlcpd.page.job import MAX_HOSTS, Job
from dlcpd.page.page_token import drawn, from_file
from dlcpd.page.remote import RemotePage
from dlcpd.page.server import Shown, is_loopback, server


def page(options: argparse.Namespace, output: Output) -> int:
    """Serve the page. If no daemon answers yet, the page waits for it.

    Raises: BadConfig, AddressUnavailable.
    """
    address = address_of(listening(options.listen, "--listen"))
    token, told = _token(options, loopback=is_loopback(address[0]))
    shown = _shown(options, token)
    with server(address, shown, token) as served:
        host, port = served.server_address[:2]
        url = f"http://{_reached(str(host))}:{port}/" + (f"#token={token}" if told else "")
        output.document({"url": url, "token": bool(token)})
        output.line(f"{url}  (Ctrl-C ends it)")
        if token:
            output.line(
                "the token and the page cross the network unencrypted: use ssh -L, or a proxy "
                "with TLS"
            )
        _say_whether_there(shown, output)
        with suppress(KeyboardInterrupt):  # the way to end it
            served.serve_forever()
    return 0


def _shown(options: argparse.Namespace, token: str) -> Daemon | Job:
    """Raises: BadConfig."""
    if not options.job:
        if options.of:
            raise BadConfig("page: --of needs --job: which job of these hosts?")
        return Daemon(options.socket)
    if len(options.of) > MAX_HOSTS:
        raise BadConfig(f"page: {len(options.of)} times --of; at most {MAX_HOSTS}")
    given = token if options.token_file else ""  # a drawn one is known to no other page
    return Job(
        options.job,
        [RemotePage(one, given) if "://" in one else Daemon(one) for one in options.of]
        or [Daemon(options.socket)],
    )


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


def _say_whether_there(shown: Shown, output: Output) -> None:
    try:
        found = shown.status()
        report = found["report"]
    except DlcpError as exc:
        output.line(f"{exc}; the page waits for it")
    else:
        hosts = f", {found['job']['hosts']} hosts" if "job" in found else ""
        output.line(
            f"of {report['host']}: dlcpd {report['version']}, {len(report['sessions'])} sessions"
            f"{hosts}"
        )
