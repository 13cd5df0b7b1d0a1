"""Configurations with secrets, by platform, and the secrets: for tests that none gets out.

Spellings: EOS manual 4.30 ("User Security", "SNMP", "TACACS+", "Border Gateway Protocol", "OSPF"),
NX-OS 10.x security and routing guides, NVUE 5.x reference, Junos `display set` ("encrypted-
password", "authentication-key", "secret"), sonic-yang-models (sonic-passwh, sonic-snmp,
sonic-system-tacacs, sonic-system-radius, sonic-bgp-neighbor, sonic-macsec, sonic-restapi).
"""

import json
import re
from typing import Final

from tests.switchcfg.foreign_devices import DEVICES

HASH: Final = "$6$vT1fhU2a$Kq9wX0rZbN7cLpVdEs3MhYtGfRjQxAo"
WORDS: Final = (HASH, "hunter2hunter", "0822455D0A1649", "Pa55phrase-of-bgp", "9ijkl3MACsecKey77")
PEM: Final = "MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
SECRETS: Final = (*WORDS, PEM)
_A, _B, _C, _D, _E = WORDS

# Lines of the whole switch, and lines of a port that no reader knows
_LINES: Final = {
    "eos": (
        f"username admin secret sha512 {_A}\nsnmp-server community {_B} ro\n"
        f"tacacs-server key 7 {_C}\nradius-server host 192.0.2.1 key 7 {_C}\n"
        f"router bgp 65000\n   neighbor 192.0.2.2 password 7 {_D}\n"
        f"management security\n   ssl profile P\n      certificate {_E}\n{PEM}\n"
        f"interface {{port}}\n   foo authentication-key 7 {_D}\n   bar key {_E}\n"
    ),
    "nxos": (
        f"username admin password 5 {_A}  role network-admin\nsnmp-server community {_B} group x\n"
        f'tacacs-server key 7 "{_C}"\nradius-server host 192.0.2.1 key 7 "{_C}" authentication\n'
        f"router bgp 65000\n  neighbor 192.0.2.2\n    password 3 {_D}\n"
        f"key chain K macsec\n  key 1000\n    key-octet-string 7 {_E} cryptographic-algorithm x\n"
        f"crypto ca trustpoint T\n{PEM}\n"
        f"interface {{port}}\n  foo authentication-key 7 {_D}\n  bar key {_E}\n"
    ),
    "nvue": (
        f"nv set system aaa user cumulus hashed-password {_A}\n"
        f"nv set service snmp-server readonly-community {_B} access any\n"
        f"nv set system aaa tacacs server 1 secret {_C}\n"
        f"nv set system aaa radius server 192.0.2.1 secret {_C}\n"
        f"nv set vrf default router bgp neighbor swp9 password {_D}\n"
        f"nv set system security certificate C data '{PEM}'\n"
        f"nv set interface {{port}} foo authentication-key {_D}\n"
        f"nv set interface {{port}} bar key {_E}\n"
    ),
    "junos": (
        f'set system root-authentication encrypted-password "{_A}"\n'
        f"set snmp community {_B} authorization read-only\n"
        f'set system tacplus-server 192.0.2.1 secret "{_C}"\n'
        f'set system radius-server 192.0.2.1 secret "{_C}"\n'
        f'set protocols bgp group x authentication-key "{_D}"\n'
        f'set security certificates local c "{PEM}"\n'
        f'set interfaces {{port}} unit 0 foo authentication-key "{_D}"\n'
        f'set interfaces {{port}} unit 0 bar key "{_E}"\n'
    ),
    "linux": "",
}
_TABLES: Final = {
    "SNMP_COMMUNITY": {_B: {"TYPE": "RO"}},
    "SNMP_USER": {"u": {"SNMP_USER_AUTH_PASSWORD": _B}},
    "TACPLUS": {"global": {"passkey": _C}},
    "RADIUS": {"global": {"passkey": _C}},
    "BGP_NEIGHBOR": {"192.0.2.2": {"auth_password": _D}},
    "MACSEC_PROFILE": {"m": {"primary_cak": _E}},
    "RESTAPI": {"certs": {"server_key": PEM}},
    "USER": {"admin": {"password": _A}},
    "PORT_QOS_NEW": {"{port}": {"auth_password": _D, "key": _E}},
}
# Where secrets may be on a platform: the answer of a Linux switch has queues, filters and rules
# only, one of OpenConfig has /qos only.
NAMES: Final = [each for each in DEVICES if each[0] not in ("linux", "openconfig")]


def planted(platform: str, name: str, port: str) -> str:
    """A configuration of others with secrets. `port`: has lines with some; "": there are none."""
    text = DEVICES[platform, name]
    if platform == "sonic":
        more = {key: rows for key, rows in _TABLES.items() if port or "{port}" not in rows}
        return json.dumps({**json.loads(text), **more}).replace("{port}", port)
    lines = _LINES[platform]
    if not port:
        lines = re.sub(r"interface \{port\}\n.*", "", lines, flags=re.DOTALL)
        lines = "".join(line for line in lines.splitlines(keepends=True) if "{port}" not in line)
    return text + lines.replace("{port}", port)
