//! What happens while the screen is shown.

use super::job::ServerAnswer;
use super::key::Key;

/// Something that happened.
#[derive(Debug)]
pub enum ScreenMessage {
    Key(Key),
    /// Columns and rows.
    Resize(u16, u16),
    Answer(Box<ServerAnswer>),
    /// The process is asked to end.
    Terminate,
    /// The terminal or the thread of the server has failed.
    Failed(String),
}
