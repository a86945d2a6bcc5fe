//! Words on standard error that wait for no reader: whoever reads nothing holds up nobody who holds a lease.

use std::sync::mpsc::{SyncSender, sync_channel};
use std::time::Duration;

use crate::told::complain;

/// Words that may wait to be read; what comes on top is left out.
const UNREAD: usize = 64;

/// A thread of its own that says what it is given.
#[derive(Clone)]
pub struct Voice(SyncSender<Word>);

enum Word {
    Line(String),
    /// Everything before this was said.
    Done(SyncSender<()>),
}

impl Voice {
    pub fn new() -> std::io::Result<Self> {
        let (say, said) = sync_channel(UNREAD);
        std::thread::Builder::new().name("voice".into()).spawn(move || {
            for word in said {
                match word {
                    Word::Line(line) => complain(&line),
                    // Whoever asked may have gone on.
                    Word::Done(tell) => drop(tell.try_send(())),
                }
            }
        })?;
        Ok(Self(say))
    }

    /// Says it, if there is room for it: what nobody reads is left out.
    pub fn say(&self, line: String) {
        let _ = self.0.try_send(Word::Line(line));
    }

    /// Waits until all of it was said, but no longer than this.
    pub fn end(&self, patience: Duration) {
        let (tell, told) = sync_channel(1);
        if self.0.try_send(Word::Done(tell)).is_ok() {
            // Said, or left out.
            let _ = told.recv_timeout(patience);
        }
    }
}
