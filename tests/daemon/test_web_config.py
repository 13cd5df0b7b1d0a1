"""TLS and users of the metrics port, by a file in the form of exporter-toolkit."""

import base64
import signal
import ssl
import urllib.error
import urllib.request
from datetime import UTC, datetime, timedelta
from pathlib import Path

import bcrypt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from dlcpd.contract.errors import BadConfig
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.daemon.metrics import web_config
from dlcpd.daemon.metrics.web_config import load
from tests.daemon.kit import PATIENCE, Daemon, configuration

RIGHT, WRONG = "correct", "incorrect"
SALT = b"$2b$04$abcdefghijklmnopqrstuu"  # the same in each process: names of tests hold the hash
HASH = bcrypt.hashpw(RIGHT.encode(), SALT).decode()
TLS = "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n"
USERS = f"basic_auth_users: {{prometheus: '{HASH}'}}\n"


def certificate(folder: Path) -> Path:
    """A certificate of 127.0.0.1 by itself, cert.pem, with key.pem."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "dlcpd")])
    now = datetime.now(UTC)
    hosts = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(hosts, critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    file = folder / "cert.pem"
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    return file


def web(folder: Path, text: str) -> Path:
    file = folder / "web.yml"
    file.write_text(text)
    return file


def scrape(url: str, password: str, trusted: Path | None = None) -> int:
    """Status of the answer."""
    basic = base64.b64encode(f"prometheus:{password}".encode()).decode()
    headers = {"Authorization": f"Basic {basic}"}
    request = urllib.request.Request(url, headers=headers)  # noqa: S310  # the daemon's
    context = ssl.create_default_context(cafile=trusted) if trusted else None
    try:
        with urllib.request.urlopen(  # noqa: S310  # likewise
            request, timeout=PATIENCE, context=context
        ) as answer:
            assert b"dlcpd_build_info" in answer.read()
            return int(answer.status)
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code


def test_a_port_with_tls_and_users_and_what_a_reload_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    trusted, file = certificate(tmp_path), web(tmp_path, TLS + USERS)
    table = f'[metrics]\nlisten = "127.0.0.1:0"\nweb_config = "{file}"\n'
    config = configuration(tmp_path, more=table)
    with Daemon(config) as daemon:
        port = daemon.wait_for("metrics")["port"]
        url = f"https://localhost:{port}/metrics"
        assert scrape(url, RIGHT, trusted) == 200
        assert scrape(url, WRONG, trusted) == 401
        with pytest.raises(OSError):  # noqa: PT011  # whatever urllib makes of no answer
            urllib.request.urlopen(f"http://localhost:{port}/metrics", timeout=PATIENCE)
        file.write_text(TLS + "basic_auth_users: {prometheus: plain}\n")
        assert dlcpctl(["config", "check", str(config)]) == 2
        assert "[metrics] web_config" in capsys.readouterr().err
        daemon.signal(signal.SIGHUP)
        refused = daemon.wait_for("reload_refused")
        assert "'prometheus': needs a bcrypt hash" in refused["text"]
        assert "plain" not in refused["text"]
        assert scrape(url, RIGHT, trusted) == 200, "that of before stays"
        other = bcrypt.hashpw(WRONG.encode(), bcrypt.gensalt(4)).decode()
        file.write_text(f"{TLS}basic_auth_users: {{prometheus: '{other}'}}\n")
        daemon.signal(signal.SIGHUP)
        daemon.wait_for("reloaded")
        assert scrape(url, WRONG, trusted) == 200
        assert scrape(url, RIGHT, trusted) == 401


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("- a", "the file: must be a map"),
        ("a: [", "is no YAML"),
        ("tls_config: {}", "tls_config: dlcpd does not know it"),
        ("tls_server_config: {cert_file: cert.pem}", "tls_server_config.key_file: is missing"),
        ("tls_server_config: {cert_file: a, key_file: b}", "No such file"),
        (f"{TLS[:-2]}, ciphers: a}}", "tls_server_config.ciphers: dlcpd does not know it"),
        (f"{TLS[:-2]}, min_version: TLS10}}", "min_version: 'TLS10' is none of TLS12, TLS13"),
        (f"{TLS[:-2]}, client_ca_file: cert.pem}}", "go together"),
        (f"{TLS[:-2]}, client_auth_type: RequireAndVerifyClientCert}}", "go together"),
        ("basic_auth_users: [a]", "must be a map of names"),
        ("basic_auth_users: {a: secret}", "'a': needs a bcrypt hash"),
        (f"basic_auth_users: {{a: '{HASH.replace('$04$', '$31$')}'}}", "cost 31, at most 14"),
    ],
)
def test_a_wrong_file_is_one_error_by_name(tmp_path: Path, text: str, named: str) -> None:
    certificate(tmp_path)
    file = web(tmp_path, text)
    with pytest.raises(BadConfig) as caught:
        load(str(file))
    assert str(caught.value).startswith(f"[metrics] web_config {file}: ")
    assert named in str(caught.value) and "secret" not in str(caught.value)


def test_clients_can_be_asked_for_a_certificate(tmp_path: Path) -> None:
    certificate(tmp_path)
    more = "client_ca_file: cert.pem, client_auth_type: RequireAndVerifyClientCert"
    found = load(str(web(tmp_path, f"{TLS[:-2]}, {more}}}")))
    assert found.tls and found.tls.verify_mode is ssl.CERT_REQUIRED
    assert found.tls.minimum_version is ssl.TLSVersion.TLSv1_2


def test_only_a_user_with_the_password_is_admitted_and_tried_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def header(user: str, password: str) -> str:
        return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()

    found = load(str(web(tmp_path, USERS)))
    for wrong in (
        None,
        "",
        "Basic",
        "Basic ?",
        f"Bearer {RIGHT}",
        header("prometheus", WRONG),
        header("other", RIGHT),
        header("prometheus", "\0"),
        header("prometheus", "x" * 100),
    ):
        assert not found.admits(wrong)
    assert found.admits(header("prometheus", RIGHT))
    monkeypatch.setattr(bcrypt, "checkpw", lambda *_: False)
    assert found.admits(header("prometheus", RIGHT)), "not computed again"
    assert load("").admits(None)


def test_without_the_libraries_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_config, "find_spec", lambda _: None)
    with pytest.raises(BadConfig, match=r"needs pyyaml and bcrypt: pip install 'dlcpd\[web\]'"):
        load(str(web(tmp_path, USERS)))


def test_an_encrypted_key_is_an_error_and_no_question_on_the_terminal(tmp_path: Path) -> None:
    certificate(tmp_path)
    file = tmp_path / "key.pem"
    key = serialization.load_pem_private_key(file.read_bytes(), None)
    file.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(b"passphrase"),
        )
    )
    with pytest.raises(BadConfig, match=r"tls_server_config: .*key\.pem: "):
        load(str(web(tmp_path, TLS)))
