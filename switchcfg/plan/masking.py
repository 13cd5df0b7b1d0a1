"""Masks secrets in lines of a device, for errors, values that are stored, and diffs. Pure.

Lines with secrets are not near QoS, and no reader takes values from them. A line that is not
understood, an error and the device's own diff can contain one nevertheless.
"""

import re
from typing import Final

MASK: Final = "<masked>"
# Words before a secret: users, SNMP, TACACS+, RADIUS, BGP, OSPF, MACsec, IPsec (EOS, NX-OS, NVUE,
# Junos and CONFIG_DB); then the type of its encoding, and the secret.
_WORDS: Final = (
    r"[\w-]{0,32}(?:passwords?|passwd|passphrase|passkey|secret|community|psk|keytab|md5|"
    r"(?:auth|authentication|encryption|private|privacy|shared|ssh|radius|tacacs|public)[-_]key|"
    r"key[-_](?:string|octet-string|data)|cak|certificate|sshkey|ssh-(?:rsa|dsa|ed25519)|"
    r"ecdsa-sha2-\w+|(?:auth|priv) (?:md5|sha\S*|des\S*|aes\S*(?: \d+)?))"
)
_TYPES: Final = (
    r"(?:(?:\d|\da|encrypted|clear|plaintext|hash|sha\d*|aes|type\d|ascii-text|hexadecimal|"
    r"rw|ro|name|set|message-digest-key \d+ md5) )*"
)
_VALUE: Final = r"(?:\"[^\"\n]*\"?|'[^'\n]*'?|[^\s;,}]+)"
_AFTER: Final = re.compile(
    rf"(\b{_WORDS}\b[\"']?[ \t]*[ \t:=][ \t]*{_TYPES})({_VALUE})", re.IGNORECASE
)
_KEY: Final = re.compile(
    rf"(?<!hash-)(\bkey[\"']?[ \t]*[ \t:=][ \t]*(?:\d\w? )?)({_VALUE})", re.IGNORECASE
)
# Forms of secrets that have no word before them: crypt(5), Junos type 9, PEM, keys in base64, hex
_FORMS: Final = re.compile(
    r"\$(?:[0-9]\w?|sha1|y|md5)\$[^\s\"',;]+|-----BEGIN.*?-----END[^-\n]*-----|-----BEGIN.*|\b[0-9a-fA-F]{16,}\b|"
    r"(?=[A-Za-z/+]{0,64}\d)(?=[a-z0-9/+]{0,64}[A-Z])(?=[A-Z0-9/+]{0,64}[a-z])[A-Za-z0-9+/]{32,}=*",
    re.DOTALL,
)


def masked(text: str) -> str:
    """The text, with MASK in the place of everything that may be a secret."""
    text = _FORMS.sub(MASK, text)
    for shape in (_AFTER, _KEY):
        text = shape.sub(lambda hit: hit[1] + MASK, text)
    return text
