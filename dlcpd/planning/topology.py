"""Reads a topology file. It has one of two forms; both give a `Graph`.

Hosts by rate, in racks or all on one switch, which is never the limit:

    [hosts]
    a = "100gbit"
    b = { send = "100gbit", receive = "50gbit" }

    [racks.left]
    hosts = ["a", "b"]
    uplink = "200gbit"

Or any links between hosts and switches. `one_way = true`: from `from` to `to` only:

    hosts = ["a", "b"]
    switches = ["s"]

    [[links]]
    from = "a"
    to = "s"
    rate = "100gbit"

Every mistake is one BadConfig that names file, key and remedy.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.toml_text import hint, loaded, shown
from dlcpd.planning.graph import DirectedLink, Graph, Rates, in_racks, merged
from dlcpd.planning.rates import bits_per_second

MOST_HOSTS: Final = 4096
MOST_SWITCHES: Final = 4096  # racks too
MOST_LINKS: Final = 1 << 16
MOST_NAME: Final = 255  # characters, as many as a host name has
_TABLES: Final = ("hosts", "racks", "switches", "links")
_RATES: Final = ("send", "receive")
_RACK: Final = ("hosts", "uplink")
_LINK: Final = ("from", "to", "rate", "one_way")


def parse(text: str, source: str) -> Graph:
    """The network of a topology file; `source` names the file in errors. Raises: BadConfig."""
    try:
        return _graph(loaded(text))
    except BadConfig as exc:
        raise BadConfig(f"{source}: {exc}") from exc


def for_job(graph: Graph, job: Sequence[str], source: str) -> Graph:
    """`graph` with the hosts of a job alone, in the job's order. Other hosts forward nothing.

    Raises: BadConfig if the job has a host that the file does not have, or its hosts are not
    connected without the others.
    """
    for host in job:
        if host not in graph.hosts:
            raise BadConfig(
                f"{source}: hosts: {host!r} of this job is missing; "
                f"{hint(host, graph.hosts)}; "
                "add it with its rate"
            )
    kept = [*map(graph.hosts.index, job), *range(len(graph.hosts), graph.nodes)]
    number = {old: new for new, old in enumerate(kept)}
    links = merged(
        DirectedLink(number[link.source], number[link.target], link.rate)
        for link in graph.links
        if link.source in number and link.target in number
    )
    smaller = Graph(tuple(job), graph.switches, links)
    try:
        _check_connected(smaller)
    except BadConfig as exc:
        raise BadConfig(f"{source}: {exc}") from exc
    return smaller


def _graph(document: dict[str, Any]) -> Graph:
    _refuse_unknown(document, _TABLES, "the file")
    hosts = document.get("hosts")
    if not hosts or not isinstance(hosts, dict | list):
        raise BadConfig(
            'hosts: missing or empty; list the hosts with their rates: [hosts], a = "100gbit"'
        )
    graph = _linked(document) if isinstance(hosts, list) else _by_rate(document)
    _check_connected(graph)
    return graph


def _by_rate(document: dict[str, Any]) -> Graph:
    """The form with rates of hosts, and racks."""
    for key in ("switches", "links"):
        if key in document:
            raise BadConfig(
                f"{key}: not with rates of hosts; give racks, or hosts as a list of names"
            )
    hosts = {
        _name(host, "hosts"): _rates(given, f"hosts.{host}")
        for host, given in _limited(document["hosts"], "hosts", MOST_HOSTS).items()
    }
    racks = document.get("racks", {})
    if not isinstance(racks, dict):
        raise BadConfig("racks: must be tables like [racks.left] with hosts and uplink")
    uplinks, members, place = {}, [], dict[str, str]()
    for rack, table in _limited(racks, "racks", MOST_SWITCHES).items():
        where = f"racks.{_name(rack, 'racks')}"
        if rack in hosts:
            raise BadConfig(f"racks: {rack!r} is a host too; rename one of them")
        _check_table(table, _RACK, where)
        members.append(_names(table.get("hosts"), f"{where}.hosts", MOST_HOSTS))
        for host in members[-1]:
            _check_known(host, hosts, f"{where}.hosts")
            if host in place:
                raise BadConfig(
                    f"{where}.hosts: {host!r} is in rack {place[host]!r} too; remove it from one"
                )
            place[host] = rack
        uplinks[rack] = _rates(_present(table, "uplink", where), f"{where}.uplink")
    if racks and (missing := [host for host in hosts if host not in place]):
        raise BadConfig(f"racks: host {missing[0]!r} is in no rack; add it to hosts of its rack")
    return in_racks(hosts, uplinks, members)


def _linked(document: dict[str, Any]) -> Graph:
    """The form with links between hosts and switches."""
    if "racks" in document:
        raise BadConfig("racks: not with a list of hosts; write [hosts] with a rate for each")
    hosts = _names(document["hosts"], "hosts", MOST_HOSTS)
    given = document.get("switches", [])
    switches = _names(given, "switches", MOST_SWITCHES) if given != [] else ()
    if both := set(hosts) & set(switches):
        raise BadConfig(f"switches: {min(both)!r} is a host too; rename one of them")
    links = document.get("links")
    if not isinstance(links, list) or len(links) > MOST_LINKS:
        raise BadConfig(
            f"links: give 1 to {MOST_LINKS} tables [[links]] with from, to and rate, "
            'or write hosts with their rates: [hosts], a = "100gbit"'
        )
    number = {name: node for node, name in enumerate((*hosts, *switches))}
    found: list[DirectedLink] = []
    for position, table in enumerate(links):
        found += _link(table, number, f"links[{position}]")
    return Graph(hosts, switches, merged(found))


def _link(table: Any, number: Mapping[str, int], where: str) -> list[DirectedLink]:
    _check_table(table, _LINK, where)
    ends = [_present(table, key, where) for key in ("from", "to")]
    for key, end in zip(("from", "to"), ends, strict=True):
        _check_known(end, number, f"{where}.{key}")
    if ends[0] == ends[1]:
        raise BadConfig(f"{where}: from and to are both {ends[0]!r}; name two nodes")
    one_way = table.get("one_way", False)
    if not isinstance(one_way, bool):
        raise BadConfig(f"{where}.one_way: must be true or false")
    rate = _rate(_present(table, "rate", where), f"{where}.rate")
    a, b = (number[end] for end in ends)
    there, back = DirectedLink(a, b, rate), DirectedLink(b, a, rate)
    return [there] if one_way else [there, back]


def _check_connected(graph: Graph) -> None:
    """Raises: BadConfig naming a host that the first one does not reach, or from which no links
    lead to it."""
    for backwards, what in ((False, "lead to it"), (True, "lead from it")):
        reached = graph.reached(0, backwards=backwards)
        for node, host in enumerate(graph.hosts):
            if node not in reached:
                raise BadConfig(
                    f"hosts: {host!r} is not connected: no links {what} "
                    f"{'to' if backwards else 'from'} {graph.hosts[0]!r}; add a link"
                )


def _rates(given: Any, where: str) -> Rates:
    """A rate for both directions, or a table with one for each."""
    if not isinstance(given, dict):
        rate = _rate(given, where)
        return Rates(rate, rate)
    _check_table(given, _RATES, where)
    send, receive = (_rate(_present(given, key, where), f"{where}.{key}") for key in _RATES)
    return Rates(send, receive)


def _rate(given: Any, where: str) -> int:
    try:
        return bits_per_second(given)
    except ValueError as exc:
        raise BadConfig(f"{where}: {exc}") from None


def _names(given: Any, where: str, most: int) -> tuple[str, ...]:
    if not isinstance(given, list) or not 1 <= len(given) <= most:
        raise BadConfig(f"{where}: must be a list of 1 to {most} names")
    found: set[str] = set()
    for name in given:
        if _name(name, where) in found:
            raise BadConfig(f"{where}: {name!r} is listed twice; remove one")
        found.add(name)
    return tuple(given)


def _name(name: Any, where: str) -> str:
    if not isinstance(name, str) or not 1 <= len(name) <= MOST_NAME:
        raise BadConfig(f"{where}: {shown(name)} is not a name of 1 to {MOST_NAME} characters")
    if not name.isprintable():  # no job can have such a host: daemons escape these characters
        raise BadConfig(f"{where}: {shown(name)} has a character that cannot be printed; rename it")
    return name


def _limited(table: dict[str, Any], where: str, most: int) -> dict[str, Any]:
    if len(table) > most:
        raise BadConfig(f"{where}: {len(table)} entries, at most {most}; leave out other jobs'")
    return table


def _present(table: Mapping[str, Any], key: str, where: str) -> Any:
    if key not in table:
        raise BadConfig(f"{where}: {key} is missing; add it")
    return table[key]


def _check_table(table: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(table, dict):
        raise BadConfig(f"{where}: must be a table with {', '.join(known)}")
    _refuse_unknown(table, known, where)


def _check_known(name: Any, known: Iterable[str], where: str) -> None:
    if not isinstance(name, str) or name not in known:
        near = hint(name if isinstance(name, str) else "", known)
        raise BadConfig(f"{where}: {shown(name)} is unknown; {near}")


def _refuse_unknown(given: Iterable[str], known: Iterable[str], where: str) -> None:
    for key in given:
        if key not in known:
            raise BadConfig(f"unknown key {shown(key)} in {where}; {hint(key, known)}")
