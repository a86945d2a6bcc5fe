"""Credentials: signed texts that prove a lease offline, to services that cannot ask the server."""

from __future__ import annotations

from typing import Optional, Union

from . import _native, aio
from .durations import Duration, milliseconds
from .lease import Lease
from .records import VerifiedCredential


class CredentialIssuer:
    """Signs credentials under its own lease: a former issuer cannot sign any more. Without a key it generates one."""

    def __init__(
        self,
        name: str,
        lease: Union[Lease, aio.Lease],
        *,
        key_name: str = "1",
        key: Optional[bytes] = None,
    ) -> None:
        self._native = _native.NativeIssuer(name, lease._native, key_name, key)

    def issue(self, lease: Union[Lease, aio.Lease], *, audience: str, subject: str, lifetime: Duration = 60) -> str:
        """Signs a credential for a lease that this process holds. It ends before the lease."""
        return self._native.issue(lease._native, audience, subject, milliseconds("lifetime", lifetime))

    def revoke(self, token_number: int) -> None:
        """Revokes the credentials of a lease."""
        self._native.revoke(token_number)

    def revocation_list(self) -> str:
        """The signed list that verifiers load again and again."""
        return self._native.revocation_list()

    def jwks(self) -> str:
        """The public keys, as a JSON Web Key Set."""
        return self._native.jwks()


class CredentialVerifier:
    """Verifies credentials of one issuer for one audience. It rejects everything until it has a revocation list."""

    def __init__(self, issuer: str, audience: str, jwks: str) -> None:
        self._native = _native.NativeVerifier(issuer, audience, jwks)

    def set_revocation_list(self, text: str) -> None:
        """Loads a revocation list."""
        self._native.set_revocation_list(text)

    def verify(self, text: str, resource: str) -> VerifiedCredential:
        """Verifies a credential for a resource. Raises ``AccessDeniedError`` with the reason."""
        return VerifiedCredential(*self._native.verify(text, resource))
