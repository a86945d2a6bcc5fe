//! Backup of a running server, as a stream of chunks.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::Stream;
use leasehold_wire::{problem_from_status, v1};
use tonic::{Status, Streaming};

use crate::failover::RetrySafety;
use crate::server_pool::GrpcClient;
use crate::{Client, Error};

/// A backup in progress: a stream of byte chunks, which concatenated are the backup file. The end of the file proves that it is
/// complete. A broken backup cannot be continued; start a new one.
#[derive(Debug)]
#[must_use = "streams do nothing unless polled"]
pub struct BackupStream(Streaming<v1::BackupChunk>);

impl Stream for BackupStream {
    type Item = Result<Vec<u8>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let chunk = |chunk: Result<v1::BackupChunk, Status>| match chunk {
            Ok(chunk) => Ok(chunk.bytes),
            Err(status) => Err(download_failed("backup", &status)),
        };
        Pin::new(&mut self.0).poll_next(context).map(|next| next.map(chunk))
    }
}

impl Client {
    /// Starts a backup of the whole state as of now.
    pub async fn backup(&self) -> Result<BackupStream, Error> {
        let send = |mut client: GrpcClient, request| async move { client.backup(request).await };
        self.servers.call(RetrySafety::ReadOnly, Duration::ZERO, v1::BackupRequest {}, send).await.map(BackupStream)
    }
}

/// Why a download ended early. A download is not continued, so an unknown outcome does not matter.
pub(crate) fn download_failed(what: &str, status: &Status) -> Error {
    let error = Error::from(problem_from_status(status));
    if error.outcome_unknown() {
        Error::unavailable(format!("the {what} broke off ({})", status.message())).with_next_step("Start a new one.")
    } else {
        error
    }
}
