//! A backup while the server serves, piece by piece.

use std::time::Duration;

use leasehold_wire::{from_status, v1};
use tonic::{Status, Streaming};

use crate::lease::To;
use crate::route::Nature;
use crate::{Client, Error};

/// A backup on its way. Its pieces, one behind the other, are the file; its end proves that it is whole.
#[derive(Debug)]
pub struct Copying(Streaming<v1::BackupPiece>);

impl Copying {
    /// The next bytes; none at the end. A copy that broke off is not gone on with: begin a new one.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = self.0.message().await.map_err(|status| broke_off("backup", &status))?;
        Ok(piece.map(|piece| piece.bytes))
    }
}

impl Client {
    /// The whole state as of now.
    pub async fn backup(&self) -> Result<Copying, Error> {
        let send = |mut to: To, ask| async move { to.backup(ask).await };
        self.call(Nature::Look, Duration::ZERO, v1::BackupRequest {}, send).await.map(Copying)
    }
}

/// Why a file on its way ended before its end: a copy is not gone on with, so what is unknown does not matter.
pub(crate) fn broke_off(what: &str, status: &Status) -> Error {
    let told = Error::from(from_status(status));
    if told.is_indeterminate() {
        Error::unavailable(format!("the {what} broke off ({})", status.message())).then("Begin a new one.")
    } else {
        told
    }
}
