"""A small, real identity provider on loopback: discovery, authorisation code with PKCE, signed ID tokens, userinfo.

Whoever comes is the person of `claims`, at once. `spoil` makes it lie in one way.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

Json = dict[str, Any]
CLIENT, SECRET = "agentsite-console", "s3cret-of-the-client-0123456789"
SPOILS: dict[str, Callable[[Json], Json]] = {
    "issuer": lambda c: {**c, "iss": "https://elsewhere.example"},
    "audience": lambda c: {**c, "aud": "another-client"},
    "two_audiences": lambda c: {**c, "aud": [CLIENT, "another-client"]},
    "party": lambda c: {**c, "azp": "another-client"},
    "expired": lambda c: {**c, "exp": int(time.time()) - 3600},
    "nonce": lambda c: {**c, "nonce": "of-another-sign-in"},
    "no_nonce": lambda c: {k: v for k, v in c.items() if k != "nonce"},
    "no_expiry": lambda c: {k: v for k, v in c.items() if k != "exp"},
    "subject": lambda c: {**c, "sub": ""},
}


def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


class Provider:
    """Start it with `with`; `url` is its issuer."""

    def __init__(self) -> None:
        self.key, self.other_key = _key(), _key()
        self.claims: Json = {"sub": "u-1", "preferred_username": "ana", "groups": ["approvers"]}
        self.spoil = ""
        self.codes: dict[str, Json] = {}
        self.asked: list[str] = []
        self.basic = True
        self.groups_at_userinfo = False
        owner = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                owner.get(self)

            def do_POST(self) -> None:
                owner.post(self)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    # --- what it answers ---

    def get(self, request: BaseHTTPRequestHandler) -> None:
        parts = urlsplit(request.path)
        self.asked.append(parts.path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if parts.path == "/authorize":
            return self._authorize(request, query)
        pages = {"/.well-known/openid-configuration": self._about, "/jwks": self._jwks, "/userinfo": self._userinfo}
        page = pages.get(parts.path)
        return _answer(request, 200, page()) if page else _answer(request, 404, {})

    def _about(self) -> Json:
        issuer = "https://elsewhere.example" if self.spoil == "discovery" else self.url
        return {
            "issuer": issuer, "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token", "jwks_uri": f"{self.url}/jwks",
            "userinfo_endpoint": f"{self.url}/userinfo",
            "token_endpoint_auth_methods_supported": ["client_secret_basic" if self.basic else "client_secret_post"],
        }  # fmt: skip

    def _jwks(self) -> Json:
        shown: Json = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(self.key.public_key()))
        return {"keys": [{**shown, "kid": "k1", "alg": "RS256", "use": "sig"}]}

    def _userinfo(self) -> Json:
        return {**self.claims, **({"sub": "somebody-else"} if self.spoil == "userinfo" else {})}

    def _authorize(self, request: BaseHTTPRequestHandler, query: Json) -> None:
        assert (query["client_id"], query["response_type"]) == (CLIENT, "code")
        assert query["code_challenge_method"] == "S256" and "openid" in query["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = query
        state = "of-somebody-else" if self.spoil == "state" else query["state"]
        request.send_response(302)
        request.send_header("Location", f"{query['redirect_uri']}?{urlencode({'code': code, 'state': state})}")
        request.send_header("Content-Length", "0")
        request.end_headers()

    def post(self, request: BaseHTTPRequestHandler) -> None:
        raw = request.rfile.read(int(request.headers.get("Content-Length", "0"))).decode()
        form = {name: values[0] for name, values in parse_qs(raw).items()}
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or not self._is_client(request, form) or not _proves(form, asked):
            return _answer(request, 400, {"error": "invalid_grant"})
        return _answer(request, 200, {"access_token": "at-1", "token_type": "Bearer", "id_token": self._token(asked)})

    def _is_client(self, request: BaseHTTPRequestHandler, form: Json) -> bool:
        if not self.basic:
            return (form.get("client_id"), form.get("client_secret")) == (CLIENT, SECRET)
        sent = base64.b64decode(request.headers.get("Authorization", "").removeprefix("Basic ")).decode()
        return unquote(sent) == f"{CLIENT}:{SECRET}" and "client_secret" not in form

    def _token(self, asked: Json) -> str:
        now = int(time.time())
        told = {k: v for k, v in self.claims.items() if not (self.groups_at_userinfo and k == "groups")}
        claims = {"iss": self.url, "aud": CLIENT, "iat": now, "exp": now + 300, "nonce": asked["nonce"], **told}
        claims = SPOILS[self.spoil](claims) if self.spoil in SPOILS else claims
        if self.spoil == "unsigned":
            return jwt.encode(claims, "", algorithm="none", headers={"kid": "k1"})
        if self.spoil == "symmetric":  # signed with the public key as if it were a secret
            return _with_public_key(claims, self.key)
        key = self.other_key if self.spoil == "key" else self.key
        algorithm = "RS512" if self.spoil == "algorithm" else "RS256"
        return jwt.encode(claims, key, algorithm=algorithm, headers={"kid": "k9" if self.spoil == "kid" else "k1"})


def _with_public_key(claims: Json, key: rsa.RSAPrivateKey) -> str:
    def part(data: bytes) -> str:
        return base64.urlsafe_b64encode(data).decode().rstrip("=")

    public = key.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = (
        part(json.dumps({"alg": "HS256", "typ": "JWT", "kid": "k1"}).encode()) + "." + part(json.dumps(claims).encode())
    )
    return head + "." + part(hmac.new(public, head.encode(), hashlib.sha256).digest())


def _proves(form: Json, asked: Json) -> bool:
    """PKCE, and the address that was asked with."""
    digest = hashlib.sha256(form.get("code_verifier", "").encode()).digest()
    challenge = base64.urlsafe_b64encode(digest).decode().rstrip("=")
    return bool(challenge == asked["code_challenge"] and form.get("redirect_uri") == asked["redirect_uri"])


def _answer(request: BaseHTTPRequestHandler, status: int, body: Json) -> None:
    raw = json.dumps(body).encode()
    request.send_response(status)
    request.send_header("Content-Type", "application/json")
    request.send_header("Content-Length", str(len(raw)))
    request.end_headers()
    request.wfile.write(raw)
