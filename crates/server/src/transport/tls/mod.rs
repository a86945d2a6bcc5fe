//! TLS 1.3 with client certificates: who a peer is follows from the certificate that it proves to own.
//!
//! Beyond this machine nothing is answered without a certificate (A2). An identity is one name of the certificate, verified by the
//! bundle of its trust domain (A3). A session is never resumed, so each connection is verified under the current bundles (A10).

mod certificate;
mod client_verifier;
mod error;
mod expiry;
mod handshake;
mod handshake_limit;
mod membership;
mod settings;
mod state;

pub use certificate::{CertificateNameError, PeerName, is_trust_domain};
pub use error::{TlsError, TlsProblem};
pub use expiry::CertificateExpiry;
pub(super) use handshake::{accept, read_hello};
pub(super) use handshake_limit::{HANDSHAKE_TIMEOUT, HandshakeLimit, PendingHandshake};
pub use membership::{Membership, MembershipEnd};
pub use settings::{ClientCa, TlsSettings};
pub use state::{TlsHandle, TlsReload};
