//! What a child does: it holds a token of the number it is given, at a target.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};

use leasehold_fence::Error;
use leasehold_fence::file::{Log, Replace};
use leasehold_fence::sqlite::Fence;
use rusqlite::{Connection, TransactionBehavior};

use crate::support::{CLUSTER, name, token};

/// The word by which a child knows that it is one.
pub const PLAY: &str = "play";

/// A holder's way to its target.
pub enum Target {
    Sqlite(Fence, Connection),
    File(Log),
    Replace(Replace),
}

impl Target {
    pub fn open(kind: &str, path: &Path) -> Self {
        match kind {
            "sqlite" => {
                let db = Connection::open(path).expect("the database opens");
                db.pragma_update(None, "journal_mode", "wal").expect("wal");
                Self::Sqlite(Fence::new(CLUSTER, name(), 0), db)
            }
            "replace" => Self::Replace(Replace::open(path, CLUSTER, name(), 0).expect("the file opens")),
            _ => Self::File(Log::open(path, CLUSTER, name(), 0).expect("the log opens")),
        }
    }

    pub fn claim(&mut self, number: u64) -> Result<(), Error> {
        match self {
            Self::Sqlite(fence, db) => fence.claim(db, &token(number)).map(|_| ()),
            Self::File(log) => log.claim(&token(number)).map(|_| ()),
            Self::Replace(file) => file.claim(&token(number)).map(|_| ()),
        }
    }

    pub fn write(&mut self, number: u64, what: &str) -> Result<(), Error> {
        match self {
            Self::Sqlite(fence, db) => fence.write(db, &token(number), |tx| put(tx, number, what)),
            Self::File(log) => log.append(&token(number), what.as_bytes()).map(|_| ()),
            Self::Replace(file) => file.update(&token(number), |old| appended(old, number, what)).map(|_| ()),
        }
    }
}

pub fn put(db: &Connection, number: u64, what: &str) -> rusqlite::Result<()> {
    let number = i64::try_from(number).expect("small numbers");
    db.execute("INSERT INTO written (number, what) VALUES (?1, ?2)", (number, what)).map(|_| ())
}

/// One more line in a replaced file.
fn appended(old: &[u8], number: u64, what: &str) -> Vec<u8> {
    [old, format!("{number} {what}\n").as_bytes()].concat()
}

pub fn play(words: &[String]) {
    let [part, target, path, number] = words else { panic!("a part, a target, a path and a number: {words:?}") };
    let path = PathBuf::from(path);
    let number = number.parse().expect("a number");
    match part.as_str() {
        "late" => late(Target::open(target, &path), number),
        "inside" => inside(&path, number),
        "replacing" => replacing(&path, number),
        "twice" => twice(Target::open(target, &path), number),
        "busy" => busy(Target::open(target, &path), number),
        "racing" => racing(Target::open(target, &path), number),
        other => panic!("no such part: {other}"),
    }
}

fn say(line: &str) {
    let mut out = stdout().lock();
    // Who does not listen any more has heard enough.
    if writeln!(out, "{line}").and_then(|()| out.flush()).is_err() {
        std::process::exit(0);
    }
}

fn told(outcome: Result<(), Error>) -> String {
    match outcome {
        Ok(()) => "written".to_owned(),
        Err(error) => format!("{} {error}", error.code()),
    }
}

/// Claims, then writes only when told to: however late that is.
fn late(mut target: Target, number: u64) {
    say(&told(target.claim(number)));
    for order in stdin().lock().lines() {
        say(&told(target.write(number, &order.expect("an order"))));
    }
}

/// Stays inside its transaction, admitted and with its row written, until it is told to commit.
fn inside(path: &Path, number: u64) {
    let Target::Sqlite(fence, mut db) = Target::open("sqlite", path) else { unreachable!("it was just asked for") };
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate).expect("a transaction");
    fence.admit(&tx, &token(number)).expect("admitted");
    put(&tx, number, "inside").expect("written");
    fence.leave(&tx).expect("left");
    say("inside");
    let mut order = String::new();
    stdin().lock().read_line(&mut order).expect("an order");
    tx.commit().expect("committed");
    say("committed");
}

/// Stays inside its replace, admitted and with the file's lock, until it is told to go on.
fn replacing(path: &Path, number: u64) {
    let Target::Replace(file) = Target::open("replace", path) else { unreachable!("it was just asked for") };
    let replaced = file.update(&token(number), |old| {
        say("inside");
        let mut order = String::new();
        stdin().lock().read_line(&mut order).expect("an order");
        appended(old, number, "inside")
    });
    say(&told(replaced.map(|_| ())));
}

/// Claims and writes twice.
fn twice(mut target: Target, number: u64) {
    say(&told(target.claim(number)));
    for what in ["first", "second"] {
        say(&told(target.write(number, what)));
    }
}

/// Writes as fast as it can, and says each write when it is acknowledged.
fn busy(mut target: Target, number: u64) {
    target.claim(number).expect("claimed");
    for count in 0.. {
        target.write(number, &format!("{number}:{count}")).expect("written");
        say(&count.to_string());
    }
}

/// Shows higher and higher tokens beside others who do the same, and says what was admitted.
fn racing(mut target: Target, offset: u64) {
    say("ready");
    let mut order = String::new();
    stdin().lock().read_line(&mut order).expect("an order");
    for round in 0..200 {
        let number = 1 + round * 4 + offset;
        let outcome = target.claim(number).and_then(|()| target.write(number, "race"));
        match outcome {
            Ok(()) => say(&number.to_string()),
            Err(Error::Refused(_)) => {}
            Err(other) => panic!("{other}"),
        }
    }
}
