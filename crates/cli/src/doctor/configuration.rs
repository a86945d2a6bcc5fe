//! The configuration file of a server and the files that it names.

use std::path::{Path, PathBuf};

use leasehold::Error;

use super::certificates;
use super::finding::Finding;
use crate::serve::settings::{ServeSettings, SettingsArgs};

const CHECK: &str = "config";

/// Checks the file. Returns its settings if they can be read.
pub fn check(path: &Path) -> (Vec<Finding>, Option<ServeSettings>) {
    let subject = path.display().to_string();
    let refused = |error: &Error| {
        let next = format!("correct it, then run leasehold config check {subject}");
        Finding::error(CHECK, error.message().to_owned(), next).about(&subject)
    };
    let settings = match ServeSettings::resolve(&SettingsArgs::default(), Some(path)) {
        Ok(settings) => settings,
        Err(error) => return (vec![refused(&error)], None),
    };
    let mut findings = vec![match settings.access.check_files() {
        Ok(()) => Finding::ok(CHECK, "the settings and the files that they name are valid").about(&subject),
        Err(error) => refused(&error),
    }];
    if settings.access.tls.is_none() && !settings.listen.ip().is_loopback() {
        let message = format!("the server listens on {} without TLS, so that callers are anonymous", settings.listen);
        findings.push(Finding::warning(CHECK, message, "create certificates with leasehold init").about(&subject));
    }
    findings.extend(certificates::check_server_files(&settings));
    (findings, Some(settings))
}

/// The data directory of the settings; none for a journal in memory.
pub fn data_directory(settings: &ServeSettings) -> Option<PathBuf> {
    (!settings.is_in_memory()).then(|| settings.data.clone())
}
