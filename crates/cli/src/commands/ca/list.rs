//! `leasehold ca list`: the newest certificate of each name, with the grants of its identity.

use leasehold_core::access::AccessGrant;
use serde_json::json;
use time::OffsetDateTime;

use super::DirectoryArgs;
use crate::commands::access_grant_args::grant_json;
use crate::global_args::GlobalArgs;
use crate::output::CommandResult;
use crate::pki::{CaDirectory, CertificateUsage, IssuedCertificate, date_text};
use crate::table::{TextTable, or_dash};

/// List the issued certificates with identity, grants and end
///
/// Of each name the newest certificate is listed. The key of the CA is not needed.
#[derive(clap::Args)]
#[command(after_help = "Example:\n  leasehold ca list --dir /etc/leasehold")]
pub struct Args {
    #[command(flatten)]
    directory: DirectoryArgs,
}

pub fn run(args: &Args, global: &GlobalArgs) -> CommandResult {
    let directory = CaDirectory::open(&args.directory.dir)?;
    let (issued, access, revoked) = (directory.issued()?, directory.access()?, directory.revoked()?);
    let now = OffsetDateTime::now_utc();
    let newest =
        issued.iter().enumerate().filter(|(at, one)| issued.get(at + 1).is_none_or(|next| next.name != one.name));
    let rows: Vec<_> = newest
        .map(|(_, certificate)| {
            let state = match () {
                () if revoked.contains(&certificate.serial) => "revoked",
                () if certificate.not_after < now => "expired",
                () => "valid",
            };
            (certificate, access.grants_of(&certificate.identity()).cloned().collect::<Vec<_>>(), state)
        })
        .collect();
    let body = json!({
        "certificates": rows.iter().map(|(certificate, grants, state)| json!({
            "name": certificate.name,
            "identity": certificate.identity(),
            "usage": certificate.usage.word(),
            "hosts": certificate.names.hosts.iter().map(ToString::to_string).collect::<Vec<_>>(),
            "grants": grants.iter().map(grant_json).collect::<Vec<_>>(),
            "serial": certificate.serial,
            "not_after": date_text(certificate.not_after),
            "state": state,
        })).collect::<Vec<_>>(),
    });
    let names = rows.iter().map(|(certificate, _, _)| certificate.name.clone());
    let output = global.listing(&body, names, || {
        let header = ["NAME", "IDENTITY", "GRANTS", "END", "STATE"];
        let mut table = TextTable::new(header).with_wide(global.is_wide(), ["USAGE", "HOSTS", "SERIAL"]);
        for (certificate, grants, state) in &rows {
            let cells = [
                certificate.name.clone(),
                certificate.identity(),
                grants_text(certificate, grants),
                date_text(certificate.not_after),
                (*state).to_owned(),
            ];
            let hosts = Some(certificate.names.host_text()).filter(|hosts| !hosts.is_empty());
            table.row_with(cells, [certificate.usage.word().to_owned(), or_dash(hosts), certificate.serial.clone()]);
        }
        table.text()
    });
    Ok(global.or_empty(output, rows.is_empty(), || {
        "no certificate was issued here; issue one with `leasehold ca issue NAME --role ROLE --prefix PREFIX`"
            .to_owned()
    }))
}

fn grants_text(certificate: &IssuedCertificate, grants: &[AccessGrant]) -> String {
    if certificate.usage == CertificateUsage::Server {
        return "server".to_owned();
    }
    let texts = grants.iter().map(|grant| match &*grant.prefix {
        "" => grant.role.to_string(),
        prefix => format!("{}:{prefix}", grant.role),
    });
    let texts: Vec<_> = texts.collect();
    if texts.is_empty() { "-".to_owned() } else { texts.join(",") }
}
