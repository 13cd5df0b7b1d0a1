"""Topology files: both forms, and one clear error for each mistake."""

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.planning import bounds
from dlcpd.planning.graph import DirectedLink, Graph
from dlcpd.planning.rates import bits_per_second, in_words
from dlcpd.planning.topology import MOST_HOSTS, for_job, parse
from tests.planning.networks import on_a_switch, racks

RACKS = """
[hosts]
a = "100gbit"
b = { send = "100gbit", receive = "50gbit" }
c = "25gbit"

[racks.left]
hosts = ["a", "b"]
uplink = "200gbit"

[racks.right]
hosts = ["c"]
uplink = "40gbit"
"""
LINKS = """
hosts = ["a", "b", "c"]
switches = ["s"]

[[links]]
from = "a"
to = "s"
rate = "10gbit"

[[links]]
from = "b"
to = "s"
rate = "10gbit"

[[links]]
from = "c"
to = "a"
rate = "2gbit"
one_way = true

[[links]]
from = "s"
to = "c"
rate = "3gbit"
one_way = true
"""
G = 10**9
HUGE = "0x" + "0" * 9999 + "f" * 9999  # Python does not write integers of so many digits


def test_hosts_in_racks() -> None:
    graph = parse(RACKS, "net.toml")
    assert graph.hosts == ("a", "b", "c") and graph.switches == ("core", "left", "right")
    links = {(graph.name(a), graph.name(b)): rate for a, b, rate in graph.links}
    assert links["b", "left"] == 100 * G and links["left", "b"] == 50 * G
    assert links["right", "core"] == links["core", "right"] == 40 * G
    assert len(links) == 10


def test_hosts_on_one_switch() -> None:
    text = "[hosts]\n" + "\n".join(f'h{n} = "{rate}gbit"' for n, rate in enumerate((1, 2, 3)))
    assert parse(text, "net.toml") == on_a_switch([G, 2 * G, 3 * G])


def test_any_links() -> None:
    graph = parse(LINKS, "net.toml")
    assert graph.links == (
        DirectedLink(0, 3, 10 * G),
        DirectedLink(1, 3, 10 * G),
        DirectedLink(2, 0, 2 * G),
        DirectedLink(3, 0, 10 * G),
        DirectedLink(3, 1, 10 * G),
        DirectedLink(3, 2, 3 * G),
    )
    assert bounds.broadcast(graph, 2).rate == 2 * G


def test_parallel_links_are_one() -> None:
    link = '[[links]]\nfrom = "a"\nto = "b"\nrate = "1gbit"\n'
    assert parse('hosts = ["a", "b"]\n' + 2 * link, "x").links == (
        DirectedLink(0, 1, 2 * G),
        DirectedLink(1, 0, 2 * G),
    )


MISTAKES = {
    "not TOML": (RACKS, "[hosts]", "[hosts", "net.toml: "),
    "no hosts": (RACKS, "[hosts]", "[hosst]", "unknown key 'hosst' in the file; did you mean ho"),
    "hosts missing": (RACKS, RACKS, "", "hosts: missing or empty; list the hosts"),
    "unknown key": (RACKS, "uplink = \"40", "uplnk = \"40", "unknown key 'uplnk' in racks.right; "),
    "key missing": (RACKS, 'uplink = "40gbit"', "", "racks.right: uplink is missing; add it"),
    "unknown host": (RACKS, '["c"]', '["cc"]', "racks.right.hosts: 'cc' is unknown; did you m"),
    "host of another kind": (RACKS, '["c"]', "[3]", "racks.right.hosts: 3 is not a name"),
    "no list": (RACKS, '["c"]', '"c"', "racks.right.hosts: must be a list of 1 to"),
    "host in no rack": (RACKS, '["a", "b"]', '["a"]', "racks: host 'b' is in no rack; add it"),
    "two racks": (RACKS, '["c"]', '["c", "a"]', "racks.right.hosts: 'a' is in rack 'left' too; re"),
    "twice": (RACKS, '["c"]', '["c", "c"]', "racks.right.hosts: 'c' is listed twice; remove one"),
    "zero": (RACKS, '"25gbit"', '"0gbit"', "hosts.c: rate '0gbit' is zero; give a rate above 0"),
    "negative": (RACKS, '"25gbit"', '"-1gbit"', "hosts.c: rate '-1gbit' is negative; write it"),
    "a number": (RACKS, '"25gbit"', "25", "hosts.c: 25 is not a rate; write it like"),
    "unit": (RACKS, '"25gbit"', '"25Gb"', "hosts.c: '25Gb' is not a rate; write it like"),
    "too fast": (RACKS, '"25gbit"', '"9999999tbit"', "hosts.c: rate '9999999tbit' is above 1000"),
    "one direction": (RACKS, ', receive = "50gbit"', "", "hosts.b: receive is missing; add it"),
    "direction": (RACKS, "receive", "recieve", "unknown key 'recieve' in hosts.b; did you me"),
    "racks as a list": (RACKS, "[racks.right]", "[[racks.right]]", "racks.right: must be a table"),
    "racks as a text": ('[hosts]\na = "1gbit"', "[h", 'racks = "x"\n[h', "racks: must be tables"),
    "links with rates": (RACKS, "[racks.left]", "[[links]]\n[racks.left]", "links: not with rates"),
    "racks with links": (LINKS, "switches", "racks = {}\nswitches", "racks: not with a list of ho"),
    "no links": ('hosts = ["a"]', "", "", "links: give 1 to"),
    "unknown end": (LINKS, 'to = "a"', 'to = "t"', "links[2].to: 't' is unknown; known: a, b, c"),
    "unknown end of a link": (LINKS, 'to = "a"', 'to = 7', "links[2].to: 7 is unknown; known: a"),
    "to itself": (LINKS, 'to = "a"', 'to = "c"', "links[2]: from and to are both 'c'; name two"),
    "no rate": (LINKS, 'rate = "2gbit"', "", "links[2]: rate is missing; add it"),
    "one_way": (LINKS, "true", '"yes"', "links[2].one_way: must be true or false"),
    "unknown key of a link": (LINKS, "one_way", "oneway", "unknown key 'oneway' in links[2]; did "),
    "a host is a switch": (LINKS, '["s"]', '["s", "b"]', "switches: 'b' is a host too; rename one"),
    "unconnected": (LINKS, 'to = "c"', 'to = "b"', "hosts: 'c' is not connected: no links lead"),
    "no way back": (LINKS, 'from = "c"', 'from = "b"', "is not connected: no links lead from it"),
    "long name": (RACKS, "c = ", f"{'c' * 300} = ", "hosts: 'ccc"),
    "deep": (RACKS, RACKS, "a = " + "[" * 5000, "net.toml: lists or tables are nested too deeply"),
    "digits": (RACKS, '"25gbit"', "9" * 5000, "net.toml: a number has too many digits (at line 5)"),
    "huge": (RACKS, '"25gbit"', HUGE, "hosts.c: an integer of 39996 bits is not a rate; write it"),
    "huge name": (RACKS, '["c"]', f"[{HUGE}]", "racks.right.hosts: an integer of 39996 bits is no"),
    "huge end": (LINKS, 'to = "a"', f"to = {HUGE}", "links[2].to: an integer of 39996 bits is unk"),
    "long": (RACKS, '"25gbit"', f'"-{HUGE}"', "000... is negative; write it like"),
    "two lines": (RACKS, "c = ", '"c\\nd" = ', "hosts: 'c\\nd' has a character that cannot be pri"),
    "escape": (RACKS, "right", '"\\u001b[2J"', "racks: '\\x1b[2J' has a character that cannot be"),
    "backwards": (LINKS, '["s"]', '["s\\u202e"]', "switches: 's\\u202e' has a character that can"),
    "a rack is a host": (RACKS, "racks.left", "racks.c", "racks: 'c' is a host too; rename one"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_is_one_error_with_its_place(case: str) -> None:
    text, old, new, said = MISTAKES[case]
    with pytest.raises(BadConfig) as caught:
        parse(text.replace(old, new), "net.toml")
    assert str(caught.value).startswith("net.toml: ")
    assert said in str(caught.value) and "\n" not in str(caught.value)


def test_the_core_has_a_name_of_its_own() -> None:
    graph = parse(
        RACKS.replace("left", "core").replace("c =", "core-1 =").replace('"c"', '"core-1"'), "x"
    )
    assert graph.switches == ("core-2", "core", "right") and "core-1" in graph.hosts


def test_too_many_hosts_are_refused() -> None:
    text = "[hosts]\n" + "".join(f'h{n} = "1gbit"\n' for n in range(MOST_HOSTS + 1))
    with pytest.raises(BadConfig, match="hosts: 4097 entries, at most 4096; leave out"):
        parse(text, "net.toml")


def test_a_job_on_some_of_the_hosts() -> None:
    whole = racks(2, 3, 100, 50)
    job = for_job(whole, ["h1.0", "h0.2"], "net.toml")
    assert job.hosts == ("h1.0", "h0.2") and job.switches == whole.switches
    assert bounds.all_reduce(job).rate == 50
    assert for_job(whole, whole.hosts, "net.toml") == whole


def test_a_host_of_the_job_that_the_file_lacks() -> None:
    with pytest.raises(BadConfig, match=r"net\.toml: hosts: 'h00' of this job is missing; did you"):
        for_job(on_a_switch([1, 1]), ["h0", "h00"], "net.toml")


def test_other_hosts_do_not_connect_those_of_a_job() -> None:
    ways = ((0, 1), (1, 0), (1, 2), (2, 1))
    line = Graph(("a", "b", "c"), (), tuple(DirectedLink(*way, 1) for way in ways))
    with pytest.raises(BadConfig, match=r"net\.toml: hosts: 'c' is not connected"):
        for_job(line, ["a", "c"], "net.toml")


@pytest.mark.parametrize(
    ("text", "rate"),
    [("1bit", 1), ("500kbit", 500_000), ("2.5Gbit", 25 * 10**8), (" 1 tbit ", 10**12)],
)
def test_rates(text: str, rate: int) -> None:
    assert bits_per_second(text) == rate
    assert bits_per_second(in_words(rate)) == rate
