//! `leasehold audit verify FILE.html`: verifies a page of `leasehold trace --html`.

use std::io::{BufRead, Read};
use std::path::Path;

use leasehold::{Code, Error};
use leasehold_server::audit::HeadCheck;
use leasehold_server::dashboard::trace_file::{TraceFileError, verify_trace_file};
use serde_json::json;

use super::{proof_body, proof_lines};
use crate::global_args::GlobalArgs;
use crate::output::{CommandError, CommandResult};
use crate::table::key_values;

/// Largest page that is read.
const MAX_BYTES: u64 = 512 << 20;
/// Exit code if the chain is intact and the page could not be compared.
const EXIT_NOT_COMPARED: u8 = 8;

/// Whether a file is a page, and not an export. Nothing is consumed.
pub fn is_page(file: &mut impl BufRead) -> bool {
    file.fill_buf().is_ok_and(|start| start.starts_with(b"<"))
}

pub fn verify(file: impl Read, path: &Path, known: HeadCheck, global: &GlobalArgs) -> CommandResult {
    let name = path.display().to_string();
    let mut page = Vec::new();
    let read = file.take(MAX_BYTES + 1).read_to_end(&mut page);
    read.map_err(|error| Error::config("file", format!("cannot read {name}: {error}; check the path and its mode")))?;
    if page.len() as u64 > MAX_BYTES {
        let message = format!("{name} is larger than {MAX_BYTES} bytes; check the path");
        return Err(Error::config("file", message).into());
    }
    let page =
        String::from_utf8(page).map_err(|_| corrupt(&name, "not UTF-8 text; the file was damaged or converted"))?;
    let proof = verify_trace_file(&page, known).map_err(|error| refused(&name, &error))?;
    let body = proof_body(&proof.chain);
    let shown = format!("shows all {} entries of {} in the chain", proof.entries, proof.resource);
    let mut value = json!(body);
    value["page"] = json!({ "resource": proof.resource, "entries": proof.entries });
    Ok(global.output(&value, || {
        let mut lines = proof_lines(&body);
        lines.push(("page", shown));
        key_values(&lines)
    }))
}

fn corrupt(name: &str, reason: &str) -> Error {
    Error::new(Code::Corrupt, format!("{name}: {reason}"))
}

fn refused(name: &str, error: &TraceFileError) -> CommandError {
    match error {
        TraceFileError::Chain(line) => Error::corrupt_file(name, line.line, error.to_string()).into(),
        TraceFileError::Unknown => Error::config("file", format!("{name}: {error}")).into(),
        TraceFileError::NoChain | TraceFileError::OtherLayout { .. } => {
            let code = if *error == TraceFileError::NoChain { Code::NotFound } else { Code::UnsupportedVersion };
            CommandError::WithExitCode(Error::new(code, format!("{name}: {error}")), EXIT_NOT_COMPARED)
        }
        TraceFileError::Cut | TraceFileError::Page { .. } => corrupt(name, &error.to_string()).into(),
    }
}
