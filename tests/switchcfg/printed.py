"""What switches make of the lines that they were told, when they are asked.

EOS prints all code points of one traffic class on one line, and no defaults (a `show qos map` in
the DISA STIG "Arista MLS EOS 4.2x Router", control SV-256014; AVD's molecule qos.md; the default
maps of the EOS manual, "Quality of Service"). NVUE prints one line for all ports and numbers that
are set alike (`nv set interface swp1-2,32 type swp` of `nv config show -o commands`; Cumulus Linux
"Quality of Service", `traffic-class 4,5,7`, `switch-priority 0-3,5-7`).
"""

import re

EOS_TC = {bits: tc for bits, tc in enumerate((1, 0, 2, 3, 4, 5, 6, 7))}
_DSCP = re.compile(r"qos map dscp (\d+) to traffic-class (.+)")
_QUEUE = re.compile(r"qos map traffic-class (\d) to tx-queue (\d)")
_NVUE = re.compile(r"(.*?(?:dscp|priority|traffic-class|interface swp) ?)(\d+)( .*)")


def eos(text: str) -> str:
    """A running configuration as EOS prints it."""
    points: dict[str, list[int]] = {}
    rest: list[str] = []
    for line in text.splitlines():
        if found := _DSCP.fullmatch(line):
            if found[2] != str(EOS_TC[int(found[1]) >> 3]):
                points.setdefault(found[2], []).append(int(found[1]))
        elif (found := _QUEUE.fullmatch(line)) and found[1] == found[2]:
            pass
        else:
            rest.append(line)
    maps = [
        f"qos map dscp {' '.join(map(str, sorted(numbers)))} to traffic-class {to}"
        for to, numbers in sorted(points.items())
    ]
    return "".join(f"{line}\n" for line in [*maps, *rest])


def nvue(text: str) -> str:
    """An applied configuration as NVUE prints it."""
    lines: dict[tuple[str, str], list[int]] = {}
    for line in text.splitlines():
        found = _NVUE.fullmatch(line)
        head, number, tail = found.groups() if found else (line, "", "")
        lines.setdefault((head, tail), []).extend([int(number)] if number else [])
    return "".join(f"{head}{ranges(found)}{tail}\n" for (head, tail), found in lines.items())


def ranges(numbers: list[int]) -> str:
    """1, 2, 3, 7 -> `1-3,7`."""
    out: list[list[int]] = []
    for each in sorted(numbers):
        if out and out[-1][-1] == each - 1:
            out[-1][1:] = [each]
        else:
            out.append([each])
    return ",".join("-".join(map(str, part)) for part in out)
