"""TLS and users of the metrics port, from a file in the form of Prometheus' exporter-toolkit.

Source: github.com/prometheus/exporter-toolkit, docs/web-configuration.md.
"""

import base64
import binascii
import hashlib
import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.errors import BadConfig

MOST_BYTES: Final = 1 << 20  # of the file: thousands of users
MOST_COST: Final = 14  # of a bcrypt hash: a second of CPU for each password that is not known yet
MOST_KNOWN: Final = 1024  # passwords that were right, by digest; then all are forgotten
NEEDS: Final = {"yaml": "pyyaml", "bcrypt": "bcrypt"}  # module: project of the extra
_HASH: Final = re.compile(r"\$2[abxy]\$(\d\d)\$[./A-Za-z0-9]{53}")
# Compared where the user is unknown, so that the time does not tell.
_NOBODY: Final = "$2b$10$" + "." * 53
_VERIFY: Final = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_VERSIONS: Final = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_TLS: Final = (
    "cert_file", "key_file", "client_auth_type", "client_ca_file", "min_version", "max_version",
)  # fmt: skip
_TABLES: Final = ("tls_server_config", "basic_auth_users")


@dataclass(frozen=True, slots=True)
class WebConfig:
    """Without values: HTTP for everybody. `users`: bcrypt hash of the password by name."""

    tls: ssl.SSLContext | None = None
    users: Mapping[str, str] = field(default_factory=dict)
    _known: set[bytes] = field(default_factory=set)
    _one: threading.Lock = field(default_factory=threading.Lock)

    def admits(self, authorization: str | None) -> bool:
        """Whether the value of a request's header Authorization names a user and the password.

        Passwords that were right before cost nothing; others are tried one at a time.
        """
        if not self.users:
            return True
        digest = hashlib.sha256((authorization or "").encode()).digest()
        if digest in self._known:
            return True
        name, password = _basic(authorization or "")
        with self._one:
            import bcrypt  # noqa: PLC0415  # an extra

            try:
                right = bcrypt.checkpw(password, self.users.get(name, _NOBODY).encode())
            except ValueError:  # a password with a NUL, or longer than bcrypt takes
                right = False
            if right and name in self.users:
                if len(self._known) >= MOST_KNOWN:
                    self._known.clear()
                self._known.add(digest)
                return True
        return False


def load(file: str) -> WebConfig:
    """The configuration in `file`; none if that is empty. Raises: BadConfig naming file and key."""
    if not file:
        return WebConfig()
    try:
        return _read(Path(file))
    except BadConfig as exc:
        raise BadConfig(f"[metrics] web_config {file}: {exc}") from exc


def _read(file: Path) -> WebConfig:
    missing = [project for module, project in NEEDS.items() if find_spec(module) is None]
    if missing:
        raise BadConfig(f"needs {' and '.join(missing)}: pip install 'dlcpd[web]'")
    import yaml  # noqa: PLC0415  # an extra

    try:
        with file.open("rb") as opened:
            text = opened.read(MOST_BYTES + 1)
        if len(text) > MOST_BYTES:
            raise BadConfig(f"larger than {MOST_BYTES} B")
        found = yaml.safe_load(text)
    except OSError as exc:
        raise BadConfig(f"cannot be read: {exc.strerror}") from exc
    except (yaml.YAMLError, ValueError, RecursionError) as exc:
        raise BadConfig(f"is no YAML: {' '.join(str(exc).split())[:200]}") from exc
    document = _table({} if found is None else found, "", _TABLES)
    tls, users = document.get("tls_server_config"), document.get("basic_auth_users")
    return WebConfig(None if tls is None else _tls(tls, file.parent), _users(users or {}))


def _table(found: Any, name: str, known: tuple[str, ...]) -> dict[str, Any]:
    """A map with known keys. Raises: BadConfig."""
    if not isinstance(found, dict):
        raise BadConfig(f"{name or 'the file'}: must be a map")
    for key in found:
        if key not in known:
            raise BadConfig(
                f"{f'{name}.' if name else ''}{key}: dlcpd does not know it; "
                f"known: {', '.join(known)}"
            )
    return found


def _tls(found: Any, folder: Path) -> ssl.SSLContext:
    """Raises: BadConfig."""
    name = "tls_server_config"
    table = _table(found, name, _TLS)
    for key, value in table.items():
        if not isinstance(value, str):
            raise BadConfig(f"{name}.{key}: must be a text")
    for key in ("cert_file", "key_file"):
        if not table.get(key):
            raise BadConfig(f"{name}.{key}: is missing")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _choice(table, f"{name}.min_version", _VERSIONS, "TLS12")
    context.maximum_version = _choice(table, f"{name}.max_version", _VERSIONS, "TLS13")
    certificate, key = (str(folder / table[each]) for each in ("cert_file", "key_file"))
    try:
        # Without `password`, OpenSSL would ask for that of an encrypted key on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (OSError, ValueError) as exc:
        raise BadConfig(f"{name}: {certificate} and {key}: {_reason(exc)}") from exc
    verify = _choice(table, f"{name}.client_auth_type", _VERIFY, "NoClientCert")
    authority = table.get("client_ca_file", "")
    if bool(authority) != (verify is not ssl.CERT_NONE):
        raise BadConfig(f"{name}: client_ca_file and a client_auth_type that verifies go together")
    if authority:
        try:
            context.load_verify_locations(str(folder / authority))
        except OSError as exc:
            raise BadConfig(f"{name}.client_ca_file: {authority}: {_reason(exc)}") from exc
        context.verify_mode = verify
    return context


def _choice(table: dict[str, Any], where: str, known: Mapping[str, Any], default: str) -> Any:
    value = table.get(where.rpartition(".")[2], default)
    if value not in known:
        raise BadConfig(f"{where}: {value!r} is none of {', '.join(known)}")
    return known[value]


def _reason(exc: Exception) -> str:
    return (exc.strerror if isinstance(exc, OSError) else "") or str(exc) or type(exc).__name__


def _users(found: Any) -> dict[str, str]:
    """Raises: BadConfig; the text has no hash."""
    if not isinstance(found, dict):
        raise BadConfig("basic_auth_users: must be a map of names and bcrypt hashes")
    for user, value in found.items():
        form = _HASH.fullmatch(value) if isinstance(value, str) else None
        if not isinstance(user, str) or ":" in user or form is None:
            raise BadConfig(f"basic_auth_users: {user!r}: needs a bcrypt hash, like htpasswd -nB's")
        if int(form[1]) > MOST_COST:
            raise BadConfig(f"basic_auth_users: {user!r}: cost {form[1]}, at most {MOST_COST}")
    return found


def _basic(authorization: str) -> tuple[str, bytes]:
    """User and password of "Basic BASE64"; empty ones for anything else. Source: RFC 7617."""
    scheme, _, value = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", b""
    try:
        user, _, password = base64.b64decode(value, validate=True).partition(b":")
        return user.decode(), password
    except (binascii.Error, UnicodeDecodeError):
        return "", b""
