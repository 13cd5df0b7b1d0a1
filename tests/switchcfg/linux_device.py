"""A Linux switch as far as switchcfg needs one: tc's queues, nft's tables, sysctl's values.

It answers in the kernel's words: hex, units, its own order. Written from what tc and nft did
on a real kernel; tests marked netns let those do it.
"""

import json
import re
from dataclasses import dataclass, field
from typing import Any

HASH = "net.ipv4.fib_multipath_hash_policy"


def rate(text: str) -> str:
    """As tc shows it: units go up while nothing is lost, and from a million on."""
    number, units = int(text.removesuffix("bit")), ["", "K", "M", "G", "T"]
    while number >= 1000 and not (number % 1000 and number < 10**6):
        number //= 1000
        units.pop(0)
    return f"{number}{units[0]}bit"


def words(line: str) -> dict[str, str]:
    """`key value` pairs of a command, wherever they stand."""
    parts = line.split()
    return dict(zip(parts, [*parts[1:], ""], strict=True))


@dataclass
class LinuxDevice:
    ports: tuple[str, ...]
    roots: dict[str, str] = field(default_factory=dict)  # port -> default
    classes: dict[tuple[str, str], dict[str, str]] = field(default_factory=dict)
    fifos: dict[tuple[str, str], str] = field(default_factory=dict)
    tables: dict[str, list[str]] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=lambda: {HASH: "0"})

    def do(self, payload: str) -> None:
        for port in re.findall(r"^tc qdisc del dev (\S+) root 2>/dev/null \|\| :$", payload, re.M):
            if port in self.roots:
                self.tc(f"qdisc del dev {port} root")
        for command, body in re.findall(r"^([^\n]*) <<'END'\n(.*?)^END\n", payload, re.M | re.S):
            if command == "tc -batch -":
                for line in body.splitlines():
                    self.tc(line)
            else:
                assert command == "nft -f -"
                self.nft(body)
        for line in re.sub(r"<<'END'\n.*?^END\n", "\n", payload, flags=re.M | re.S).splitlines():
            if line.startswith("sysctl -qw "):
                key, _, value = line.removeprefix("sysctl -qw ").partition("=")
                assert key in self.settings
                self.settings[key] = value

    def tc(self, line: str) -> None:
        at = words(line)
        port = at["dev"]
        assert port in self.ports
        if line.startswith("qdisc replace") and "root" in at:
            assert port not in self.roots, "htb cannot change its default"
            self.roots[port] = at["default"]
        elif line.startswith("qdisc del"):
            del self.roots[port]
            for made in (self.classes, self.fifos):
                for key in [key for key in made if key[0] == port]:
                    del made[key]
        elif line.startswith("qdisc replace"):
            minor = at["parent"].removeprefix("dc:")
            assert (port, minor) in self.classes
            self.fifos[port, minor] = at["limit"]
        elif line.startswith("class replace"):
            assert port in self.roots
            parent = at["parent"].removeprefix("dc:")
            assert not parent or (port, parent) in self.classes
            self.classes[port, at["classid"].removeprefix("dc:")] = at
        else:
            assert line.startswith("class del")
            del self.classes[port, at["classid"].removeprefix("dc:")]
            self.fifos.pop((port, at["classid"].removeprefix("dc:")), None)

    def nft(self, text: str) -> None:
        lines = text.splitlines()
        name = words(lines[0])["netdev"]
        assert lines[:2] == [f"table netdev {name} {{ }}", f"delete table netdev {name}"]
        self.tables.pop(name, None)
        if lines[2:]:
            known = set(re.findall(r"^\tset (\S+) ", text, re.M))
            assert set(re.findall(r"@(\S+)", text)) <= known
            self.tables[name] = lines[2:]

    def says(self) -> str:
        """What `Linux.snapshot` would make it say."""
        rows: list[dict[str, Any]] = [
            {
                "kind": "htb",
                "handle": "dc:",
                "dev": port,
                "root": True,
                "options": {"r2q": 10, "default": f"0x{minor}"},
            }
            for port, minor in self.roots.items()
        ]
        rows += (
            {"kind": "noqueue", "handle": "0:", "dev": port, "root": True, "options": {}}
            for port in self.ports
            if port not in self.roots
        )
        rows += (
            {
                "kind": "bfifo",
                "handle": "8001:",
                "dev": port,
                "parent": f"dc:{minor}",
                "options": {"limit": int(limit)},
            }
            for (port, minor), limit in self.fifos.items()
        )
        out = ["@@ qdiscs", json.dumps(rows)]
        for port in self.ports:
            out.append(f"@@ port {port}")
            out += (
                self.shown(minor, at)
                for (there, minor), at in self.classes.items()
                if there == port
            )
        out.append("@@ rules")
        for lines in self.tables.values():
            out += (re.sub(r"(?<=[ {,])(\d\d)(?=[ ,}])", _hex, line) for line in lines)
        out += ["@@ settings", *(f"{key} = {value}" for key, value in self.settings.items())]
        return "\n".join(out) + "\n"

    @staticmethod
    def shown(minor: str, at: dict[str, str]) -> str:
        inner = "root" if minor == "1" else f"parent dc:1 leaf 8001: prio {at['prio']}"
        return (
            f"class htb dc:{minor} {inner} rate {rate(at['rate'])} ceil {rate(at['ceil'])} "
            f"burst {at['burst']}b cburst {at['cburst']}b "
        )


def _hex(found: re.Match[str]) -> str:
    return f"0x{int(found[1]):x}"
