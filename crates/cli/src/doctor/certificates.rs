//! Ends of certificates: of this client, of a server's files, and those that servers present.

use std::path::Path;

use time::OffsetDateTime;
use x509_parser::certificate::X509Certificate;
use x509_parser::pem::Pem;
use x509_parser::prelude::FromDer;

use super::finding::Finding;
use crate::global_args::GlobalArgs;
use crate::pki::date_text;
use crate::serve::settings::ServeSettings;

const CHECK: &str = "certificate";
/// Days before the end in which a certificate should be renewed.
const RENEW_DAYS: i64 = 14;

/// The certificates that this client presents and trusts.
pub fn check_client(global: &GlobalArgs) -> Vec<Finding> {
    let Ok(Some(tls)) = global.tls() else { return Vec::new() };
    let files = [Some(&tls.ca), tls.cert.as_ref()];
    files.into_iter().flatten().map(|file| check_file(file)).collect()
}

/// The certificates of the settings of a server.
pub fn check_server_files(settings: &ServeSettings) -> Vec<Finding> {
    let Some(tls) = &settings.access.tls else { return Vec::new() };
    let files = [tls.cert.as_path()].into_iter().chain(tls.client_ca.iter().map(|ca| ca.file.as_path()));
    files.map(check_file).collect()
}

/// The first end of the certificates in a PEM file.
fn check_file(file: &Path) -> Finding {
    let subject = file.display().to_string();
    let bytes = match std::fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) => {
            let message = format!("cannot read the file: {error}");
            return Finding::error(CHECK, message, "check its path and its mode").about(subject);
        }
    };
    let blocks = Pem::iter_from_buffer(&bytes).filter_map(Result::ok);
    let ends: Vec<_> =
        blocks.filter(|block| block.label == "CERTIFICATE").filter_map(|block| end(&block.contents)).collect();
    match ends.into_iter().min() {
        Some(end) => judge(end, OffsetDateTime::now_utc()),
        None => Finding::error(CHECK, "the file contains no certificate", "name a PEM file with a certificate"),
    }
    .about(subject)
}

/// The certificate that a server presented.
pub fn check_presented(der: &[u8]) -> Finding {
    match end(der) {
        Some(end) => judge(end, OffsetDateTime::now_utc()),
        None => Finding::error(CHECK, "the certificate cannot be read", "issue another one with leasehold ca issue"),
    }
}

fn end(der: &[u8]) -> Option<OffsetDateTime> {
    let (_, certificate) = X509Certificate::from_der(der).ok()?;
    Some(certificate.validity().not_after.to_datetime())
}

fn judge(end: OffsetDateTime, now: OffsetDateTime) -> Finding {
    const NEXT: &str = "renew it with leasehold ca renew NAME";
    let (days, date) = ((end - now).whole_days(), date_text(end));
    if end <= now {
        Finding::error(CHECK, format!("it ended on {date}"), NEXT)
    } else if days < RENEW_DAYS {
        Finding::warning(CHECK, format!("it ends on {date}, in {days} days"), NEXT)
    } else {
        Finding::ok(CHECK, format!("valid until {date}"))
    }
}

#[cfg(test)]
mod tests {
    use time::Duration;

    use super::super::finding::FindingStatus;
    use super::*;

    #[test]
    fn a_certificate_is_renewed_before_it_ends() {
        let now = OffsetDateTime::now_utc();
        let status = |days: i64| judge(now + Duration::days(days), now).status;
        assert_eq!((status(15), status(14)), (FindingStatus::Ok, FindingStatus::Ok));
        assert_eq!(
            (status(13), status(0), status(-1)),
            (FindingStatus::Warning, FindingStatus::Error, FindingStatus::Error)
        );
    }
}
