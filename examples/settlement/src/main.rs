//! The double settlement: a paused worker whose rows were already sent, a successor that did its job, and a bank that paid
//! twice. Played with real processes, first without fences and then with them.
//!
//! ```text
//! cargo run -p leasehold-settlement              everything in a directory that is removed
//! cargo run -p leasehold-settlement -- DIR       everything kept there, to look at
//! SETTLEMENT_POSTGRES='host=… dbname=…' …        the table in an empty PostgreSQL database
//! ```

mod books;
mod grantor;
mod party;
mod story;
mod table;
mod wire;
mod worker;

use std::path::PathBuf;
use std::process::ExitCode;

/// Whatever can go wrong around the story; the story's own refusals are answers.
type Fault = Box<dyn std::error::Error + Send + Sync>;

/// The merchants that are owed, and how much, in cents.
const OWED: [(&str, i64); 20] = [
    ("Alder Books", 18_250),
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
    let words: Vec<String> = std::env::args().skip(1).collect();
    let played = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [worker::WORD, ref rest @ ..] => worker::play(rest).map(|()| true),
        [wire::WORD, ref rest @ ..] => wire::play(rest).map(|()| true),
        [] => kept_for_now(),
        [directory] if !directory.starts_with('-') => story::play(&PathBuf::from(directory)),
        _ => {
            eprintln!("usage: settlement [DIRECTORY]");
            return ExitCode::from(2);
        }
    };
    match played {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(8),
        Err(fault) => {
            eprintln!("settlement: {fault}");
            ExitCode::FAILURE
        }
    }
}

fn kept_for_now() -> Result<bool, Fault> {
    let directory = std::env::temp_dir().join(format!("settlement-{}", std::process::id()));
    let played = story::play(&directory);
    std::fs::remove_dir_all(&directory)?;
    played
}
