//! The binary `leasehold-tidy`: prints the bill of materials, the notice and the license texts of a release.

use std::process::ExitCode;

use leasehold_tidy::third_party::ThirdParty;
use leasehold_tidy::{bill_of_materials, notice};

fn main() -> ExitCode {
    let shipped = || ThirdParty::of("leasehold-cli");
    let text = match std::env::args().nth(1).as_deref() {
        Some("sbom") => bill_of_materials::text(&shipped()),
        Some("notice") => notice::text(&shipped()),
        Some("licenses") => notice::license_texts(&shipped()),
        _ => {
            eprintln!("usage: leasehold-tidy sbom|notice|licenses");
            return ExitCode::from(2);
        }
    };
    print!("{text}");
    ExitCode::SUCCESS
}
