//! The double settlement: a worker is paused after it has sent its rows, its successor settles them, and the bank pays twice. It
//! runs with real processes, first without fences and then with them.
//!
//! ```text
//! cargo run -p leasehold-settlement              in a temporary directory
//! cargo run -p leasehold-settlement -- DIR       in DIR, which is kept
//! SETTLEMENT_POSTGRES='host=… dbname=…' …        with the table in an empty PostgreSQL database
//! ```

mod process;
mod relay;
mod scenario;
mod server;
mod settlement_table;
mod targets;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

/// Any failure of the setup. Refusals by fences are part of the scenario, not failures.
type AnyError = Box<dyn std::error::Error + Send + Sync>;

/// Merchants and the amounts owed to them, in cents.
const OWED: [(&str, i64); 20] = [
    ("Alder SettlementTargets", 18_250),
    ("Birch & Daughters", 7_410),
    ("Copper Kettle", 23_900),
    ("Dune Bikes", 110_000),
    ("Elm Street Deli", 4_385),
    ("Fennel", 9_120),
    ("Gorse Optics", 56_700),
    ("Hazel Yarn", 3_275),
    ("Iris Prints", 12_640),
    ("Juniper Bar", 31_015),
    ("Kelp Surf", 45_990),
    ("Larch Tools", 27_305),
    ("Mallow Teas", 6_480),
    ("Nettle Soap", 5_155),
    ("Oak & Iron", 88_200),
    ("Pine Toys", 14_730),
    ("Quince Jam", 2_960),
    ("Reed Flutes", 39_450),
    ("Sorrel Farm", 17_845),
    ("Thistle Inn", 64_000),
];

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let result = match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [worker::SUBCOMMAND, ref rest @ ..] => worker::run(rest).map(|()| true),
        [relay::SUBCOMMAND, ref rest @ ..] => relay::run(rest).map(|()| true),
        [] => run_in_temporary_directory(),
        [directory] if !directory.starts_with('-') => scenario::run(&PathBuf::from(directory)),
        _ => {
            eprintln!("usage: settlement [DIRECTORY]");
            return ExitCode::from(2);
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(8),
        Err(error) => {
            eprintln!("settlement: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_in_temporary_directory() -> Result<bool, AnyError> {
    let directory = std::env::temp_dir().join(format!("settlement-{}", std::process::id()));
    let result = scenario::run(&directory);
    std::fs::remove_dir_all(&directory)?;
    result
}
