"""Removes secrets from text and documents that leave the host.

Three means: values that are known to be secret, wherever they stand; values after a name that says
so (`password=...`, `"token": ...`, `--secret ...`); and values whose form says so (private keys in
PEM, hashes of passwords, credentials in URLs and headers, tokens of known services, long keys). A
short password in a sentence, which is none of these, is not found.
"""

import base64
import json
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote

REMOVED: Final = "[removed]"
LEAST: Final = 6  # characters of a known value; shorter ones stand in too many other words
# No pattern may take long for a hostile log: quantifiers are bounded, and possessive where two
# could share characters.
_WORDS: Final = (
    r"secrets?|tokens?|passw(?:or)?ds?|passphrases?|pwd|credentials?|cookies?|"
    r"(?:api|private|access|secret|job|signing|encryption|auth)[_-]?keys?"
)
_NAME: Final = rf"(?:(?<![A-Za-z0-9])(?:{_WORDS})|(?<![\w-])keys?)(?![A-Za-z0-9])[\w.-]{{0,64}}+"
_VALUE: Final = r"""("(?:[^"\\\n]|\\.)*"?|'(?:[^'\\\n]|\\.)*'?|\[removed\]|[^\s"',;}\]]+)"""


def _quoted(found: re.Match[str]) -> str:
    """The name, and REMOVED with the quotes that the value had."""
    quote_ = found[2][0] if found[2][0] in "\"'" else ""
    return f"{found[1]}{quote_}{REMOVED}{quote_}"


_IS_SECRET: Final = re.compile(_NAME, re.IGNORECASE)
_PATTERNS: Final = tuple(
    (re.compile(pattern, flags), replacement)
    for pattern, flags, replacement in (
        (
            r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]{0,40}-----|\Z)",
            re.DOTALL,
            REMOVED,
        ),
        (r"(authorization\\?[\"']?\s{0,4}[:=])[^\n]*", re.IGNORECASE, rf"\1 {REMOVED}"),
        (r"\b(Bearer|Basic)\s+[\w+/=.~-]{6,}", re.IGNORECASE, rf"\1 {REMOVED}"),
        (r"([a-z][a-z0-9+.-]{1,20}://)[^/\s@\"']{1,512}@", re.IGNORECASE, rf"\1{REMOVED}@"),
        (r"\$(?:2[abxy]?|1|5|6|y|argon2\w*)\$[\w./$=,+-]{20,}", 0, REMOVED),
        (
            r"\b(?:gh[pousr]_|github_pat_|glpat-|xox[abpr]-|hf_|sk-|AKIA|eyJ)[\w.-]{12,}",
            0,
            REMOVED,
        ),
        (rf"({_NAME}\\?[\"']?\s{{0,4}}[:=]\s{{0,4}}\\?){_VALUE}", re.IGNORECASE, _quoted),
        (rf"((?<![\w-])--[\w-]{{0,40}}?{_NAME}[ =]){_VALUE}", re.IGNORECASE, _quoted),
        (r"\b[0-9a-fA-F]{48,}\b", 0, REMOVED),  # not a commit, which has 40 digits
        (r"(?<![\w+/])[A-Za-z0-9+/]{30,}={1,2}", 0, REMOVED),
    )
)


def names_secret(name: str) -> bool:
    """Whether a variable or key of this name holds a secret."""
    return _IS_SECRET.search(name.replace("_", "-")) is not None


class Redaction:
    """Removes the values `known`, and all that looks like a secret."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        forms = {form for one in known if len(one) >= LEAST for form in _forms(one)}
        longest_first = sorted(forms, key=lambda form: (-len(form), form))
        self._known = re.compile("|".join(map(re.escape, longest_first))) if forms else None

    def text(self, text: str) -> str:
        """`text` without secrets."""
        if self._known is not None:
            text = self._known.sub(REMOVED, text)
        for pattern, replacement in _PATTERNS:
            text = pattern.sub(replacement, text)
        return text

    def document(self, value: Any) -> Any:
        """A JSON-like value without secrets; texts below a key that names a secret are removed."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {
                self.text(str(key)): REMOVED
                if isinstance(below, str) and below and names_secret(str(key))
                else self.document(below)
                for key, below in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.document(below) for below in value]
        return value


def _forms(value: str) -> set[str]:
    """`value` as it stands in text, JSON, Python, URLs and base64."""
    inner = json.dumps(value)[1:-1]
    data = value.encode(errors="surrogateescape")
    coded = quote(data, safe=""), base64.b64encode(data).decode()
    return {value, repr(value)[1:-1], inner, json.dumps(inner)[1:-1], *coded}
