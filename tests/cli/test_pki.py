"""`fedge pki` and `fedge client request`"""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from fedge.net import pki
from fedge.net.certificates import utc_now
from fedge.net.identity import load_client, load_server
from fedge.net.issued import read_issued

PAGE = Path(__file__).parents[2] / "docs" / "certificates.md"
COMMANDS = ["pki init", "pki sign", "pki revoke", "pki list", "client request"]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_json_output(fedge, command):
    assert "--format" in fedge(*command.split(), "--help").output


def test_commands_of_the_certificates_page_work(fedge, folder):
    """Run all commands of docs/certificates.md in order; a request is copied to the server before it is signed."""
    blocks = re.findall(r"^```console\n(.*?)^```$", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    calls = [shlex.split(line) for block in blocks for line in block.splitlines()]
    assert len(calls) >= 9
    for program, *args in calls:
        assert program == "fedge"
        result = fedge(*args)
        assert result.exit_code == 0, result.stderr
        assert result.stderr == ""
        if args[:2] == ["client", "request"]:
            shutil.copy(folder / args[-1] / "clinic-3.csr", folder)
        elif args[:2] == ["pki", "sign"]:
            certificate, home = folder / "clinic-3.crt", folder / ("cert-2" if "--replace" in args else "cert")
            assert re.search(r"valid until \d{4}-\d\d-\d\d: clinic-3\.crt\n", result.stdout)
            assert "Send clinic-3.crt to the client" in result.stdout
            shutil.copy(certificate, home)
            assert load_client(home).name == "clinic-3"
    assert [bool(each.revoked) for each in read_issued(folder / "pki")] == [True, True, True]
    assert load_server(folder / "pki").hosts[0] == "fl.example.org"


def test_commands_print_matching_fingerprints(fedge):
    made = fedge("pki", "init", "--host", "a").stdout
    asked = fedge("client", "request", "b").stdout
    signed = fedge("pki", "sign", "cert/b.csr").stdout
    arrived = fedge("client", "request", "b").stdout
    key = re.search("fingerprint ([0-9a-f]{64})", asked)[1]
    authority = re.search("fingerprint ([0-9a-f]{64})", made)[1]
    assert re.search("key +([0-9a-f]{64})", signed)[1] == key
    assert re.search("authority +([0-9a-f]{64})", signed)[1] == authority
    assert re.search("authority +([0-9a-f]{64})", arrived)[1] == authority
    assert "Send" not in signed  # already next to the key


def test_as_json(fedge, folder):
    made = json.loads(fedge("pki", "init", "--host", "a", "--format", "json").stdout)
    assert made["created"]
    assert made["hosts"] == ["a", "localhost", "127.0.0.1", "::1"]
    asked = json.loads(fedge("client", "request", "b", "--format", "json").stdout)
    assert (asked["request"], asked["valid_until"]) == ("cert/b.csr", None)
    signed = json.loads(fedge("pki", "sign", asked["request"], "-o", "b.crt", "--format", "json").stdout)
    assert (signed["name"], signed["path"], signed["key"]) == ("b", "b.crt", asked["key_fingerprint"])
    assert signed["authority"] == made["authority"]
    shutil.copy("b.crt", "cert")
    asked = json.loads(fedge("client", "request", "b", "--format", "json").stdout)
    assert (asked["valid_until"], asked["authority"]) == (signed["valid_until"], made["authority"])
    revoked = json.loads(fedge("pki", "revoke", "b", "--format", "json").stdout)
    assert revoked == {"name": "b", "revoked": [signed["fingerprint"]]}
    assert json.loads(fedge("pki", "revoke", "b", "--format", "json").stdout)["revoked"] == []
    found = json.loads(fedge("pki", "list", "--format", "json").stdout)
    assert [(each["role"], each["name"], each["state"]) for each in found] == [
        ("authority", "ca", "valid"),
        ("server", "server", "valid"),
        ("client", "b", "revoked"),
    ]
    assert found[2]["fingerprint"] == signed["fingerprint"]


def test_list_warns_about_expiring_certificates(fedge, folder):
    pki.init(folder / "pki", ["a"], utc_now() - timedelta(days=340))
    result = fedge("pki", "list")
    (row,) = [line.split() for line in result.stdout.splitlines() if line.strip().startswith("server")]
    assert row[:4] == ["server", "server", "expires", "soon"]
    assert result.stderr.startswith("warning: server: expired, or expires within 30 days")
    assert fedge("pki", "init").exit_code == 0
    assert fedge("pki", "list").stderr == ""


def test_mismatched_certificate_is_a_warning(fedge, folder):
    fedge("client", "request", "b")
    (folder / "cert" / "b.crt").write_text("no certificate")
    result = fedge("client", "request", "b")
    assert result.exit_code == 0
    assert result.stderr.startswith("warning: cert/b.crt is not a certificate")
    assert "Send cert/b.csr" in result.stdout


@pytest.mark.parametrize(
    ("args", "code", "problem"),
    [
        (("pki", "init", "--host", "a:1"), 2, "error: --host: expected a host name"),
        (("pki", "sign", "none.csr"), 9, "error: expected a file none.csr, got: No such file"),
        (("pki", "revoke", "b"), 9, "error: no certificate authority in pki: pass its directory as --pki"),
        (("pki", "list", "--pki", "elsewhere"), 9, "error: no certificate authority in elsewhere"),
        (("client", "request", "../b"), 2, "error: a client's name has"),
        (("client", "request", "b\x1b[2J"), 2, "got 'b\\u001b[2J'"),
        (("client", "request", "server"), 2, "error: the client name server is reserved"),
    ],
)
def test_wrong_input(fedge, folder, args, code, problem):
    result = fedge(*args)
    assert (result.exit_code, result.stdout) == (code, "")
    assert problem in result.stderr.replace("\\\\", "\\")
    assert not list(folder.rglob("*.key"))


def test_a_hostile_name_in_a_request_does_not_reach_the_terminal(fedge, folder):
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization

    from fedge.net.certificates import make_key

    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "a\x1b]0;title\x07")])
    request = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(make_key(), hashes.SHA256())
    (folder / "a.csr").write_bytes(request.public_bytes(serialization.Encoding.PEM))
    fedge("pki", "init", "--host", "a")
    result = fedge("pki", "sign", "a.csr")
    assert result.exit_code == 2
    assert "\x1b" not in result.output


def test_missing_extra_is_named(folder):
    code = (
        f"import sys; sys.path[:0] = {sys.path!r}; sys.modules['cryptography'] = None; "
        "from fedge.cli import main; sys.argv = ['fedge', 'pki', 'init']; main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert done.stderr == "error: certificates need cryptography, which is not installed; pip install 'fedge[net]'\n"
    assert not list(folder.iterdir())
