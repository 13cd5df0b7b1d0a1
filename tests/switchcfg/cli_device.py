"""A switch made of command lines, as far as switchcfg needs one: it nests, replaces and forgets.

It knows no grammar: what a line replaces is said by `SETTINGS`, written from the vendors'
documents and not from the renderers, so that an error there is not repeated here.
"""

import re
from dataclasses import dataclass, field

# Lines that set one value: a second one that agrees up to here takes the first one's place.
SETTINGS = (
    r"qos map dscp \d+ to ", r"qos map traffic-class \d+ to ", r"qos trust ", r"priority ",
    r"random-detect ecn ", r"random-detect drop drop-precedence \d+ ", r"service-profile ",
    r"set qos-group ", r"priority level ", r"bandwidth remaining ", r"random-detect minimum",
    r"random-detect non-ecn ",
    r"queue-limit ", r"bandwidth percent ", r"mtu ", r"pause ",
    r"priority-flow-control mode ",
)  # fmt: skip
IN_TURN = "no priority"  # a line of EOS that it keeps; `priority strict` takes it back


@dataclass
class Lines:
    """A tree of lines."""

    inner: dict[str, "Lines"] = field(default_factory=dict)

    def text(self, indent: int = 0) -> str:
        return "".join(
            " " * indent + line + "\n" + below.text(indent + 3)
            for line, below in self.inner.items()
        )


def run(root: Lines, script: str) -> None:
    """Type a script: indented lines belong to the section above them.

    Raises: AssertionError for a `no` that takes nothing back.
    """
    sections: list[tuple[int, Lines]] = [(-1, root)]
    for raw in script.splitlines():
        column, line = len(raw) - len(raw.lstrip()), raw.strip()
        while sections[-1][0] >= column:
            sections.pop()
        here = sections[-1][1]
        if line.startswith("no ") and line != IN_TURN:
            gone = [each for each in here.inner if _takes_back(line[3:], each)]
            assert gone, f"{line!r}: there is nothing to take back"
            for each in gone:
                del here.inner[each]
            continue
        if line in (IN_TURN, "priority strict"):
            here.inner.pop("priority strict" if line == IN_TURN else IN_TURN, None)
        for shape in SETTINGS:
            if found := re.match(shape, line):
                for each in [e for e in here.inner if e.startswith(found[0]) and e != line]:
                    del here.inner[each]
        assert not (line.startswith("service-policy") and _bound(here, line)), f"{line!r}: bound"
        sections.append((column, here.inner.setdefault(line, Lines())))


def _takes_back(what: str, line: str) -> bool:
    return line == what or line.startswith(f"{what} ")


def _bound(here: Lines, line: str) -> bool:
    """Is another policy of the kind there? It must be taken off first."""
    kind = line.rpartition(" ")[0]
    return any(each.startswith(kind) and each != line for each in here.inner)


# Lines that stand beside others of their kind instead of replacing them.
LISTS = r"code-points|fill-level|drop-probability|per-packet|export|qos pfc \S+ switch-priority"


def run_flat(have: set[str], script: str, *, make: str, unmake: str) -> None:
    """Type a script of a language without sections: `set` and `delete`, `nv set` and `nv unset`.

    Raises: AssertionError for a removal that removes nothing.
    """
    for line in script.splitlines():
        if line.startswith(f"{unmake} "):
            what = line.removeprefix(f"{unmake} ")
            gone = {each for each in have if _takes_back(what, each)}
            assert gone, f"{line!r}: there is nothing to remove"
            have -= gone
            continue
        assert line.startswith(f"{make} "), line
        new = line.removeprefix(f"{make} ")
        stem = new.rpartition(" ")[0]
        if not re.search(LISTS, new):
            have -= {each for each in have if each.rpartition(" ")[0] == stem}
        have.add(new)


# Of Junos, entries of lists: one that nothing is left in is still there (Juniper/yang 24.4,
# junos-conf-class-of-service: these are lists with a key).
ENTRIES = re.compile(
    r"class-of-service (classifiers \S+ \S+( forwarding-class \S+( loss-priority \S+)?)?|"
    r"drop-profiles \S+|schedulers \S+( drop-profile-map loss-priority \S+ protocol \S+)?|"
    r"scheduler-maps \S+( forwarding-class \S+)?|forwarding-classes class \S+|"
    r"congestion-notification-profile \S+( (input|output) \S+ code-point \S+)?|"
    r"interfaces \S+( unit \S+)?)|policy-options policy-statement \S+"
)


class JunosLines:
    """A Junos device: `set` and `delete`, and entries of lists that stay."""

    def __init__(self) -> None:
        self.have: set[str] = set()

    def do(self, payload: str) -> None:
        run_flat(self.have, payload, make="set", unmake="delete")
        # An entry is said only where nothing in it says it.
        deleted = [line[7:] for line in payload.splitlines() if line.startswith("delete ")]
        entries = {
            " ".join(line.split(" ")[:end])
            for line in deleted
            for end in range(1, len(line.split(" ")))
        }
        self.have |= {each for each in entries if ENTRIES.fullmatch(each)}
        self.have = {
            each
            for each in self.have
            if not ENTRIES.fullmatch(each)
            or not any(other.startswith(f"{each} ") for other in self.have)
        }

    def says(self) -> str:
        return "".join(f"set {line}\n" for line in sorted(self.have))
