//! The binary `leasehold-tidy`: prints the bill of materials, the notice and the license texts of a release, and compares the
//! dependencies with known vulnerabilities.

use std::path::Path;
use std::process::ExitCode;

use leasehold_tidy::advisories::AdvisoryDatabase;
use leasehold_tidy::deny_rules::DenyRules;
use leasehold_tidy::third_party::{ThirdParty, root};
use leasehold_tidy::{bill_of_materials, notice};

const USAGE: &str = "usage: leasehold-tidy sbom|notice|licenses
       leasehold-tidy advisories DIRECTORY    a copy of https://github.com/rustsec/advisory-db";

fn main() -> ExitCode {
    let shipped = || ThirdParty::of("leasehold-cli");
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let text = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["sbom"] => bill_of_materials::text(&shipped()),
        ["notice"] => notice::text(&shipped()),
        ["licenses"] => notice::license_texts(&shipped()),
        ["advisories", directory] => return check_advisories(Path::new(directory)),
        _ => {
            eprintln!("{USAGE}");
            return ExitCode::from(2);
        }
    };
    print!("{text}");
    ExitCode::SUCCESS
}

/// Fails if a dependency of the workspace or of the Python binding has a known vulnerability.
fn check_advisories(directory: &Path) -> ExitCode {
    let database = match AdvisoryDatabase::read(directory) {
        Ok(database) => database,
        Err(error) => {
            eprintln!("leasehold-tidy: {error}");
            return ExitCode::from(2);
        }
    };
    let rules = std::fs::read_to_string(root().join("deny.toml")).expect("deny.toml exists");
    let mut packages = ThirdParty::of_workspace().packages;
    packages.extend(ThirdParty::of_python_binding().packages);
    packages.sort_by(|a, b| (&a.name, &a.version).cmp(&(&b.name, &b.version)));
    packages.dedup_by(|a, b| (&a.name, &a.version) == (&b.name, &b.version));
    let findings = database.findings(&packages, &DenyRules::parse(&rules).ignored_advisories);
    for finding in &findings {
        println!("{finding}");
    }
    println!("{} packages, {} advisories, {} findings", packages.len(), database.len(), findings.len());
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
