//! The file `NOTICE`, and the license texts of everything that the binary contains.

use std::fmt::Write;
use std::fs;

use crate::third_party::ThirdParty;
use crate::vendored::VENDORED;

const HEAD: &str = "Leasehold
Licensed under MIT OR Apache-2.0; see LICENSE-MIT and LICENSE-APACHE.

The binary `leasehold` contains the following packages. `leasehold-tidy licenses` prints the license texts that they come with, and a
release contains them. This file is generated: LEASEHOLD_BLESS=1 cargo test -p leasehold-tidy --test supply_chain.

";

/// The text of `NOTICE`.
pub fn text(shipped: &ThirdParty) -> String {
    let mut text = HEAD.to_owned();
    for package in &shipped.packages {
        let from = package.repository.as_deref().map(|from| format!(", {from}")).unwrap_or_default();
        writeln!(text, "{} {} ({}){from}", package.name, package.version, package.license)
            .expect("writing to a string cannot fail");
    }
    text.push_str("\nIt also contains these files of packages from npm:\n\n");
    for file in VENDORED {
        writeln!(text, "{}", file.notice()).expect("writing to a string cannot fail");
    }
    text
}

/// The license files of all packages. Equal texts are printed once, with the packages that they are from.
pub fn license_texts(shipped: &ThirdParty) -> String {
    let mut texts: Vec<(String, Vec<String>)> = Vec::new();
    for package in &shipped.packages {
        let name = format!("{} {}", package.name, package.version);
        let mut files: Vec<_> = fs::read_dir(&package.directory)
            .into_iter()
            .flatten()
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.is_file() && is_license(&path.file_name().unwrap_or_default().to_string_lossy()))
            .collect();
        files.sort();
        for file in files {
            let Ok(text) = fs::read_to_string(&file) else { continue };
            match texts.iter_mut().find(|(known, _)| *known == text) {
                Some((_, names)) if names.last() != Some(&name) => names.push(name.clone()),
                Some(_) => {}
                None => texts.push((text, vec![name.clone()])),
            }
        }
    }
    for file in VENDORED {
        texts.push((file.license_text(), vec![format!("{} {}", file.name, file.version)]));
    }
    let line = "-".repeat(80);
    texts
        .iter()
        .map(|(text, names)| format!("{line}\n{}\n{line}\n\n{}\n\n", names.join(", "), text.trim_end()))
        .collect()
}

fn is_license(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    ["LICEN", "COPYING", "COPYRIGHT", "NOTICE", "UNLICENSE"].iter().any(|start| name.starts_with(start))
}
