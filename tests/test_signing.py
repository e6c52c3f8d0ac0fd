"""Signatures equal those that their authors published, byte for byte."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
import requests
from botocore import auth as botocore_auth

from treadstone_user.signing import AwsAuth, Tc3Auth, tc3_canonical_request, tc3_signature
from treadstone_user.transports.base import ConfigError

# Tencent Cloud, "Signature Method v3", whose example is of one moment.
TC3_AT = 1551113065
TC3_ID, TC3_KEY = "AKIDz8krbsJ5yKBZQpn74WFkmLPx3EXAMPLE", "Gu5t9xGARNpq86cd98joQYCN3EXAMPLE"
TC3_BODY = '{"Limit": 1, "Filters": [{"Values": ["\\u672a\\u547d\\u540d"], "Name": "instance-name"}]}'
TC3_HEADERS = {"Content-Type": "application/json; charset=utf-8"}
TC3_HOST = "cvm.tencentcloudapi.com"


def _prepared(method: str, url: str, **more: Any) -> requests.PreparedRequest:
    return requests.Request(method, url, **more).prepare()


def test_tc3_signs_the_example() -> None:
    """As the documentation has it with its example keys: canonical request and signature."""
    auth = Tc3Auth(TC3_ID, TC3_KEY, service="cvm", clock=lambda: TC3_AT)
    request = _prepared("POST", f"https://{TC3_HOST}/", headers=TC3_HEADERS, data=TC3_BODY)
    signed = {"content-type": TC3_HEADERS["Content-Type"], "host": TC3_HOST}
    canonical = tc3_canonical_request(request, signed)
    assert (
        hashlib.sha256(canonical.encode()).hexdigest()
        == "5ffe6a04c0664d6b969fab9a13bdab201d63ee709638e2749d62a09ca18d7031"
    )
    assert auth(request).headers["Authorization"] == (
        f"TC3-HMAC-SHA256 Credential={TC3_ID}/2019-02-25/cvm/tc3_request, SignedHeaders=content-type;host, "
        "Signature=72e494ea809ad7a8c8f7a4507b9bddcbaa8e581f516e8da2f66e2c5a96525168"
    )


def test_tc3_builds_the_newer_example() -> None:
    """It has the action among the signed headers, in lower case; its key is not published."""
    auth = Tc3Auth(TC3_ID, TC3_KEY, service="cvm", action="DescribeInstances", clock=lambda: TC3_AT)
    request = auth(_prepared("POST", f"https://{TC3_HOST}/", data=TC3_BODY, headers=TC3_HEADERS))
    signed = {
        "content-type": TC3_HEADERS["Content-Type"],
        "host": TC3_HOST,
        "x-tc-action": "DescribeInstances",
    }
    canonical = tc3_canonical_request(request, signed)
    assert canonical.splitlines()[-1] == "35e9c5b0e3ae67532d3c9f17ead6c90222632e5b1ff7f6e89887f1398934f064"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    assert digest == "7019a55be8395899b900fb5564e4200d984910f34794a27cb3fb7d10ff6a1e84"
    scope = "2019-02-25/cvm/tc3_request"
    expected = tc3_signature(TC3_KEY, "2019-02-25", "cvm", f"TC3-HMAC-SHA256\n{TC3_AT}\n{scope}\n{digest}")
    assert request.headers["Authorization"].endswith(
        f"SignedHeaders=content-type;host;x-tc-action, Signature={expected}"
    )
    assert (request.headers["X-TC-Action"], request.headers["X-TC-Timestamp"]) == (
        "DescribeInstances",
        str(TC3_AT),
    )


@dataclass(frozen=True)
class Vector:
    """A published request, and the end of the Authorization header that is right for it."""

    name: str
    method: str
    url: str
    authorization: str
    headers: dict[str, str] = field(default_factory=dict)
    body: str = ""


ID, KEY = "AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
SUITE_AT = datetime(2015, 8, 30, 12, 36, tzinfo=UTC)
HOST = "https://example.amazonaws.com"
PLAIN = "SignedHeaders=host;x-amz-date, Signature="
UNRESERVED = "-._~0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
SUITE = [
    # Amazon's aws-sig-v4-test-suite
    Vector(
        "get-vanilla", "GET", "/", f"{PLAIN}5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31"
    ),
    Vector(
        "get-vanilla-empty-query-key",
        "GET",
        "/?Param1=value1",
        f"{PLAIN}a67d582fa61cc504c4bae71f336f98b97f1ea3c7a6bfe1b6e45aec72011b9aeb",
    ),
    Vector(
        "get-vanilla-query-order-key-case",
        "GET",
        "/?Param2=value2&Param1=value1",
        f"{PLAIN}b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
    ),
    Vector(
        "get-unreserved",
        "GET",
        f"/{UNRESERVED}",
        f"{PLAIN}07ef7494c76fa4850883e2b006601f940f8a34d404d0cfa977f52a65bbf5f24f",
    ),
    Vector(
        "get-utf8", "GET", "/ሴ", f"{PLAIN}8318018e0b0f223aa2bbf98705b62bb787dc9c0e678f255a891fd03141be5d85"
    ),
    Vector(
        "get-vanilla-utf8-query",
        "GET",
        "/?ሴ=bar",
        f"{PLAIN}2cdec8eed098649ff3a119c94853b13c643bcf08f8b0a1d91e12c9027818dd04",
    ),
    Vector(
        "get-header-value-trim",
        "GET",
        "/",
        "SignedHeaders=host;my-header1;my-header2;x-amz-date, "
        "Signature=acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736",
        {"My-Header1": "value1", "My-Header2": '"a   b   c"'},
    ),
    Vector(
        "post-vanilla",
        "POST",
        "/",
        f"{PLAIN}5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
    ),
    Vector(
        "post-x-www-form-urlencoded",
        "POST",
        "/",
        "SignedHeaders=content-type;host;x-amz-date, "
        "Signature=ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
        {"Content-Type": "application/x-www-form-urlencoded"},
        "Param1=value1",
    ),
]


@pytest.mark.parametrize("vector", SUITE, ids=lambda vector: vector.name)
def test_sigv4_signs_amazons_test_suite(vector: Vector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each with its key, its moment and its service, called `service`."""
    monkeypatch.setattr(botocore_auth, "get_current_datetime", lambda: SUITE_AT)
    auth = AwsAuth(ID, KEY, service="service", region="us-east-1")
    request = _prepared(vector.method, HOST + vector.url, headers=vector.headers, data=vector.body)
    if vector.name == "get-utf8":
        request.url = HOST + vector.url  # it is published as it stands, where requests would encode it first
    auth(request)
    scope = f"AWS4-HMAC-SHA256 Credential={ID}/20150830/us-east-1/service/aws4_request, "
    assert request.headers["Authorization"] == scope + vector.authorization
    assert request.headers["X-Amz-Date"] == "20150830T123600Z"


S3_ID, S3_KEY = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
S3_AT = datetime(2013, 5, 24, tzinfo=UTC)
BUCKET = "https://examplebucket.s3.amazonaws.com"
S3 = [
    # "Authenticating Requests: Using the Authorization Header" of Amazon S3's API reference
    Vector(
        "GET object",
        "GET",
        "/test.txt",
        "SignedHeaders=host;range;x-amz-content-sha256;x-amz-date, "
        "Signature=f0e8bdb87c964420e857bd35b5d6ed310bd44f0170aba48dd91039c6036bdb41",
        {"Range": "bytes=0-9"},
    ),
    Vector(
        "PUT object",
        "PUT",
        "/test%24file.text",
        "SignedHeaders=date;host;x-amz-content-sha256;x-amz-date;x-amz-storage-class, "
        "Signature=98ad721746da40c64f1a55b78f14c238d841ea1380cd77a1b5971af0ece108bd",
        {"Date": "Fri, 24 May 2013 00:00:00 GMT", "x-amz-storage-class": "REDUCED_REDUNDANCY"},
        "Welcome to Amazon S3.",
    ),
    Vector(
        "GET bucket lifecycle",
        "GET",
        "/?lifecycle",
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
        "Signature=fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543",
    ),
    Vector(
        "list objects",
        "GET",
        "/?max-keys=2&prefix=J",
        "SignedHeaders=host;x-amz-content-sha256;x-amz-date, "
        "Signature=34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
    ),
]


@pytest.mark.parametrize("vector", S3, ids=lambda vector: vector.name)
def test_s3_signs_amazons_examples(vector: Vector, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the hash of the body as a header of its own, and paths as they are."""
    monkeypatch.setattr(botocore_auth, "get_current_datetime", lambda: S3_AT)
    auth = AwsAuth(S3_ID, S3_KEY, service="s3", region="us-east-1")
    request = auth(_prepared(vector.method, BUCKET + vector.url, headers=vector.headers, data=vector.body))
    scope = f"AWS4-HMAC-SHA256 Credential={S3_ID}/20130524/us-east-1/s3/aws4_request, "
    assert request.headers["Authorization"] == scope + vector.authorization
    assert request.headers["X-Amz-Content-SHA256"] == hashlib.sha256(vector.body.encode()).hexdigest()


WRITTEN = [
    ("a blank in a query", "/list?prefix=a+b", "/list?prefix=a%20b"),
    ("what requests leaves as it is", "/a+b&c=d@e?q=x:y/z", "/a%2Bb%26c%3Dd%40e?q=x%3Ay%2Fz"),
    ("what is encoded already", "/%E1%88%B4/100%25?q=%2B", "/%E1%88%B4/100%25?q=%2B"),
    ("a question without an answer", "/?lifecycle", "/?lifecycle"),
]


@pytest.mark.parametrize(("url", "sent"), [row[1:] for row in WRITTEN], ids=[row[0] for row in WRITTEN])
def test_s3_gets_addresses_as_it_will_write_them(url: str, sent: str) -> None:
    """It encodes what it decoded before it verifies: another spelling would be another signature."""
    auth = AwsAuth(S3_ID, S3_KEY, service="s3", region="us-east-1")
    assert auth(_prepared("GET", BUCKET + url)).url == BUCKET + sent


HOSTS = [
    ("https://gateway.test/", "gateway.test"),
    ("https://gateway.test:443/", "gateway.test"),
    ("http://gateway.test:443/", "gateway.test:443"),
    ("http://me:pass@gateway.test:8080/", "gateway.test:8080"),
]


@pytest.mark.parametrize(("url", "host"), HOSTS)
def test_tc3_signs_the_host_that_is_sent(url: str, host: str) -> None:
    """Without the scheme's own port and what stands before an @; and a GET has the type it may have."""
    signed = {"content-type": "application/x-www-form-urlencoded", "host": host}
    auth = Tc3Auth(TC3_ID, TC3_KEY, service="cvm", clock=lambda: TC3_AT, token="t0ken")
    request = auth(_prepared("GET", url))
    digest = hashlib.sha256(tc3_canonical_request(request, signed).encode()).hexdigest()
    to_sign = f"TC3-HMAC-SHA256\n{TC3_AT}\n2019-02-25/cvm/tc3_request\n{digest}"
    expected = tc3_signature(TC3_KEY, "2019-02-25", "cvm", to_sign)
    assert request.headers["Authorization"].endswith(f"SignedHeaders=content-type;host, Signature={expected}")
    assert request.headers["X-TC-Token"] == "t0ken"


def test_a_session_token_is_sent_and_signed() -> None:
    """Temporary credentials are worth nothing without it."""
    environment = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": KEY, "AWS_SESSION_TOKEN": "t0ken"}
    auth = AwsAuth.from_environment(environment, service="s3")
    request = auth(_prepared("GET", BUCKET))
    assert request.headers["X-Amz-Security-Token"] == "t0ken"
    assert "x-amz-security-token" in request.headers["Authorization"]


def test_keys_come_from_the_environment_and_are_shown_nowhere() -> None:
    """What lacks is named; no text of an auth holds a key."""
    with pytest.raises(ConfigError, match="AWS_SECRET_ACCESS_KEY must be set"):
        AwsAuth.from_environment({"AWS_ACCESS_KEY_ID": ID}, service="s3")
    with pytest.raises(ConfigError, match="TENCENTCLOUD_SECRET_ID and TENCENTCLOUD_SECRET_KEY must be set"):
        Tc3Auth.from_environment({}, service="cvm")
    environment = {"TC3_SECRET_ID": TC3_ID, "TC3_SECRET_KEY": TC3_KEY, "TC3_TOKEN": "t0ken"}
    tc3 = Tc3Auth.from_environment(environment, service="cvm")
    assert tc3(_prepared("GET", "https://gateway.test/")).headers["X-TC-Token"] == "t0ken"
    assert TC3_KEY not in repr(tc3)
    assert KEY not in repr(AwsAuth(ID, KEY, service="s3", region="x"))


def test_a_body_that_cannot_be_read_twice_is_refused() -> None:
    """A signature over nothing would be wrong, and that would be told by the gateway alone."""
    request = _prepared("POST", HOST, data=iter([b"a"]))
    with pytest.raises(ConfigError, match="body as bytes or text"):
        AwsAuth(ID, KEY, service="s3", region="x")(request)
