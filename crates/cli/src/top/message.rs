//! What happens while the screen is shown.

use super::job::JobAnswer;
use super::key::Key;

/// Something that happened.
#[derive(Debug)]
pub enum Message {
    Key(Key),
    /// Columns and rows.
    Resize(u16, u16),
    Answer(Box<JobAnswer>),
    /// The process is asked to end.
    Terminate,
    /// The terminal or the thread of the server has failed.
    Failed(String),
}
