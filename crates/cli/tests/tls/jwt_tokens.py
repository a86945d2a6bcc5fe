# Creates keys of two issuers and one JWT for each case, with the `cryptography` library. Writes DIR/one.jwks and DIR/two.jwks, and
# prints the cases as one JSON object: name, then token.
import base64
import hashlib
import hmac
import json
import sys
import time

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

directory = sys.argv[1]
NOW = int(time.time())
ONE, TWO, AUDIENCE = "https://one.example", "https://two.example", "leasehold"


def b64(data):
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def number(value, size):
    return b64(value.to_bytes(size, "big"))


rsa_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
ec_key = ec.generate_private_key(ec.SECP256R1())
ed_key = ed25519.Ed25519PrivateKey.generate()
two_key = ed25519.Ed25519PrivateKey.generate()
stranger_key = ed25519.Ed25519PrivateKey.generate()


def raw(key):
    return key.public_key().public_bytes(serialization.Encoding.Raw, serialization.PublicFormat.Raw)


def okp(key, kid):
    return {"kty": "OKP", "crv": "Ed25519", "x": b64(raw(key)), "kid": kid, "use": "sig"}


rsa_numbers, ec_numbers = rsa_key.public_key().public_numbers(), ec_key.public_key().public_numbers()
one = [
    {"kty": "RSA", "n": number(rsa_numbers.n, 256), "e": number(rsa_numbers.e, 3), "kid": "rsa", "alg": "RS256"},
    {"kty": "EC", "crv": "P-256", "x": number(ec_numbers.x, 32), "y": number(ec_numbers.y, 32), "kid": "ec"},
    okp(ed_key, "ed"),
    {"kty": "oct", "k": b64(b"a shared secret of the issuer"), "kid": "shared", "alg": "HS256"},
]
for name, keys in [("one", one), ("two", [okp(two_key, "two")])]:
    with open(f"{directory}/{name}.jwks", "w") as file:
        json.dump({"keys": keys}, file)


def rs256(data):
    return rsa_key.sign(data, padding.PKCS1v15(), hashes.SHA256())


def rs512(data):
    return rsa_key.sign(data, padding.PKCS1v15(), hashes.SHA512())


def ps256(data):
    return rsa_key.sign(data, padding.PSS(padding.MGF1(hashes.SHA256()), 32), hashes.SHA256())


def es256(data):
    r, s = decode_dss_signature(ec_key.sign(data, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def hs256(secret):
    return lambda data: hmac.new(secret, data, hashlib.sha256).digest()


def jwt(alg, kid, sign, header=None, **claims):
    head = {"alg": alg, "typ": "JWT", "kid": kid, **(header or {})}
    body = {"iss": ONE, "sub": "alice", "aud": AUDIENCE, "iat": NOW, "exp": NOW + 3600, **claims}
    body = {name: value for name, value in body.items() if value is not None}
    text = b64(json.dumps(head).encode()) + "." + b64(json.dumps(body).encode())
    return text + "." + b64(sign(text.encode()))


rsa_pem = rsa_key.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
rsa_der = rsa_key.public_key().public_bytes(serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
none = lambda data: b""
good = jwt("EdDSA", "ed", ed_key.sign)
payload = good.split(".")
mallory = json.loads(base64.urlsafe_b64decode(payload[1] + "=="))
mallory["sub"] = "mallory"
print(json.dumps({
    "ok RS256": jwt("RS256", "rsa", rs256),
    "ok ES256": jwt("ES256", "ec", es256),
    "ok EdDSA": good,
    "ok audience in a list": jwt("EdDSA", "ed", ed_key.sign, aud=["other", AUDIENCE]),
    "denied another subject": jwt("EdDSA", "ed", ed_key.sign, sub="mallory"),
    "denied the same subject of another issuer": jwt("EdDSA", "two", two_key.sign, iss=TWO),
    "alg none": jwt("none", "ed", none),
    "alg None with a signature": jwt("None", "ed", ed_key.sign),
    "HS256 with the public key (PEM) as the secret": jwt("HS256", "rsa", hs256(rsa_pem)),
    "HS256 with the public key (DER) as the secret": jwt("HS256", "rsa", hs256(rsa_der)),
    "HS256 with the public key (raw) as the secret": jwt("HS256", "ed", hs256(raw(ed_key))),
    "HS256 with a shared key of the JWKS file": jwt("HS256", "shared", hs256(b"a shared secret of the issuer")),
    "alg of another key": jwt("RS256", "ed", rs256),
    "RS512 by a key for RS256": jwt("RS512", "rsa", rs512),
    "PS256 by a key for RS256": jwt("PS256", "rsa", ps256),
    "another issuer": jwt("EdDSA", "ed", ed_key.sign, iss="https://evil.example"),
    "issuer with a slash": jwt("EdDSA", "ed", ed_key.sign, iss=ONE + "/"),
    "no issuer": jwt("EdDSA", "ed", ed_key.sign, iss=None),
    "another audience": jwt("EdDSA", "ed", ed_key.sign, aud="other"),
    "no audience": jwt("EdDSA", "ed", ed_key.sign, aud=None),
    "expired": jwt("EdDSA", "ed", ed_key.sign, iat=NOW - 7200, exp=NOW - 60),
    "not valid yet": jwt("EdDSA", "ed", ed_key.sign, nbf=NOW + 600),
    "issued in the future": jwt("EdDSA", "ed", ed_key.sign, iat=NOW + 600),
    "no end": jwt("EdDSA", "ed", ed_key.sign, exp=None),
    "no begin": jwt("EdDSA", "ed", ed_key.sign, iat=None),
    "valid for 25 hours": jwt("EdDSA", "ed", ed_key.sign, exp=NOW + 90_000),
    "no subject": jwt("EdDSA", "ed", ed_key.sign, sub=None),
    "unknown key": jwt("EdDSA", "unknown", ed_key.sign),
    "no key": jwt("EdDSA", None, ed_key.sign),
    "key of another issuer": jwt("EdDSA", "two", two_key.sign),
    "key of a stranger under a known id": jwt("EdDSA", "ed", stranger_key.sign),
    "key in the header": jwt("EdDSA", "ed", stranger_key.sign, header={"jwk": okp(stranger_key, "ed")}),
    "key at an address in the header": jwt("EdDSA", "new", stranger_key.sign, header={"jku": "http://127.0.0.1:1/"}),
    "changed claims": ".".join([payload[0], b64(json.dumps(mallory).encode()), payload[2]]),
    "cut": good[:-10],
    "no signature": ".".join(payload[:2]) + ".",
    "not a token": "secret",
}))
