//! How far the shutdown of a listener is.

/// Phase of the shutdown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShutdownPhase {
    /// Connections are accepted.
    Running,
    /// No connection is accepted; open ones receive their outstanding replies.
    Draining,
    /// Open connections are closed.
    Abort,
}
