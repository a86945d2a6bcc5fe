//! The cluster's own certificate authority: `leasehold init` creates it, `leasehold ca` uses it.
//!
//! Keys are ECDSA P-256. An identity is one SPIFFE id, a URI in the certificate; the subject is for readers only.

mod access_document;
mod authority;
mod ca_directory;
mod certificate_text;
mod names;
mod revocation_list;
mod spiffe_id;
mod subject;

pub use access_document::{AccessDocument, grant_text};
pub use authority::{CertificateAuthority, Credential};
pub use ca_directory::{ACCESS, CA_CERTIFICATE, CA_KEY, CONFIG, CaDirectory, ISSUED, REVOKED, absolute_path};
pub use certificate_text::{IssuedCertificate, date_text};
pub use names::{MAX_DAYS, ServerName, parse_credential_name, parse_server_name};
pub use revocation_list::RevokedCertificates;
pub use spiffe_id::{SpiffeId, TrustDomain};
pub use subject::{CertificateUsage, SubjectNames};
