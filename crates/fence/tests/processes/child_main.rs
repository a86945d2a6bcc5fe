//! The main function of a child process: a holder with a given token number.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use leasehold_fence::Error;
use leasehold_fence::file::{FencedFile, FencedLog};
use leasehold_fence::sqlite::Fence;
use rusqlite::{Connection, TransactionBehavior};

use crate::support::{fence_id, token};

/// First argument of a child process.
pub const CHILD_ARG: &str = "play";

/// The target of a holder.
pub enum Target {
    Sqlite(Fence, Connection),
    Log(FencedLog),
    File(FencedFile),
}

impl Target {
    pub fn open(kind: &str, path: &Path) -> Self {
        match kind {
            "sqlite" => {
                let db = Connection::open(path).expect("the database opens");
                db.pragma_update(None, "journal_mode", "wal").expect("wal");
                Self::Sqlite(Fence::new(&fence_id()), db)
            }
            "file" => Self::File(FencedFile::open(path, &fence_id()).expect("the file opens")),
            _ => Self::Log(FencedLog::open(path, &fence_id()).expect("the log opens")),
        }
    }

    pub fn claim(&mut self, number: u64) -> Result<(), Error> {
        match self {
            Self::Sqlite(fence, db) => fence.claim(db, token(number)).map(|_| ()),
            Self::Log(log) => log.claim(token(number)).map(|_| ()),
            Self::File(file) => file.claim(token(number)).map(|_| ()),
        }
    }

    pub fn write(&mut self, number: u64, value: &str) -> Result<(), Error> {
        match self {
            Self::Sqlite(fence, db) => fence.write(db, token(number), |tx| put(tx, number, value)),
            Self::Log(log) => log.append(token(number), value.as_bytes()).map(|_| ()),
            Self::File(file) => file.update(token(number), |old| append_line(old, number, value)).map(|_| ()),
        }
    }
}

pub fn put(db: &Connection, number: u64, value: &str) -> rusqlite::Result<()> {
    let number = i64::try_from(number).expect("small numbers");
    db.execute("INSERT INTO written (number, what) VALUES (?1, ?2)", (number, value)).map(|_| ())
}

/// Appends a line to the content of a file.
fn append_line(old: &[u8], number: u64, value: &str) -> Vec<u8> {
    [old, format!("{number} {value}\n").as_bytes()].concat()
}

pub fn run(args: &[String]) {
    let [role, target, path, number] = args else { panic!("a role, a target, a path and a number: {args:?}") };
    let path = PathBuf::from(path);
    let number = number.parse().expect("a number");
    match role.as_str() {
        "on_command" => on_command(Target::open(target, &path), number),
        "in_transaction" => in_transaction(&path, number),
        "in_replace" => in_replace(&path, number),
        "twice" => twice(Target::open(target, &path), number),
        "busy" => busy(Target::open(target, &path), number),
        "racing" => racing(Target::open(target, &path), number),
        other => panic!("unknown role: {other}"),
    }
}

fn print_line(line: &str) {
    let mut out = stdout().lock();
    // The parent has ended.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn describe(outcome: Result<(), Error>) -> String {
    match outcome {
        Ok(()) => "written".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// Claims, then writes on command.
fn on_command(mut target: Target, number: u64) {
    print_line(&describe(target.claim(number)));
    for command in stdin().lock().lines() {
        print_line(&describe(target.write(number, &command.expect("a command"))));
    }
}

/// Admits the token and writes a row, then waits for a command before it commits.
fn in_transaction(path: &Path, number: u64) {
    let Target::Sqlite(fence, mut db) = Target::open("sqlite", path) else { unreachable!("the kind is known") };
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    fence.admit(&tx, token(number)).expect("admitted");
    put(&tx, number, "in progress").expect("written");
    fence.end_admission(&tx).expect("ended");
    print_line("in progress");
    let mut command = String::new();
    stdin().lock().read_line(&mut command).expect("a command");
    tx.commit().expect("committed");
    print_line("committed");
}

/// Locks the file and admits the token, then waits for a command before it replaces the file.
fn in_replace(path: &Path, number: u64) {
    let Target::File(file) = Target::open("file", path) else { unreachable!("the kind is known") };
    let replaced = file.update(token(number), |old| {
        print_line("in progress");
        let mut command = String::new();
        stdin().lock().read_line(&mut command).expect("a command");
        append_line(old, number, "in progress")
    });
    print_line(&describe(replaced.map(|_| ())));
}

/// Claims and writes twice.
fn twice(mut target: Target, number: u64) {
    print_line(&describe(target.claim(number)));
    for value in ["first", "second"] {
        print_line(&describe(target.write(number, value)));
    }
}

/// Writes as fast as it can, and prints each acknowledged write.
fn busy(mut target: Target, number: u64) {
    target.claim(number).expect("claimed");
    for count in 0.. {
        target.write(number, &format!("{number}:{count}")).expect("written");
        print_line(&count.to_string());
    }
}

/// Presents higher and higher tokens concurrently with other processes, and prints the admitted ones.
fn racing(mut target: Target, offset: u64) {
    print_line("ready");
    let mut command = String::new();
    stdin().lock().read_line(&mut command).expect("a command");
    for round in 0..200 {
        let number = 1 + round * 4 + offset;
        let outcome = target.claim(number).and_then(|()| target.write(number, "race"));
        match outcome {
            Ok(()) => print_line(&number.to_string()),
            Err(Error::Refused(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
