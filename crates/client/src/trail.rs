//! What was: the audit trail about one resource or about everything, all of it as a file, and the server's own proof.

use std::time::Duration;

use leasehold_core::name::Name;
use leasehold_wire::json::{EntryBody, ProofBody, TrailBody};
use leasehold_wire::{Code, v1};
use tonic::Streaming;

use crate::backup::broke_off;
use crate::lease::To;
use crate::look::checked;
use crate::route::Nature;
use crate::{Client, Error};

/// Entries of one page: with the longest names and words they fit one message.
const PAGE: u32 = 250;
/// What is far back takes its time to be found.
const SEARCH: Duration = Duration::from_secs(60);
/// And a long trail to be proved.
const WALK: Duration = Duration::from_secs(600);

/// Which entries of the audit trail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// About this resource; none for everything.
    pub resource: Option<String>,
    /// From the oldest on; otherwise from the newest back.
    pub from_start: bool,
    /// Only those with a higher number.
    pub after: u64,
    /// Only those with a lower number; 0 for no such bound.
    pub before: u64,
}

/// The audit trail, page by page.
#[derive(Clone, Debug)]
pub struct Trail {
    client: Client,
    wanted: Wanted,
    over: bool,
    end: TrailBody,
}

impl Trail {
    /// The next page of at most so many; none when all are told.
    pub async fn page(&mut self, most: u32) -> Result<Option<Vec<EntryBody>>, Error> {
        if self.over {
            return Ok(None);
        }
        self.wanted.resource.as_deref().map(Name::parse).map(checked).transpose()?;
        let most = most.clamp(1, PAGE);
        let ask = v1::TrailRequest {
            resource: self.wanted.resource.clone().unwrap_or_default(),
            after: self.wanted.after,
            before: self.wanted.before,
            oldest_first: self.wanted.from_start,
            most,
        };
        let send = |mut to: To, ask| async move { to.trail(ask).await };
        let told = self.client.call(Nature::Look, SEARCH, ask, send).await?;
        self.over = told.entries.len() < most as usize;
        let reached = told.entries.last().map(|entry| entry.entry);
        let mut page = TrailBody::from(told);
        let entries = std::mem::take(&mut page.entries);
        self.end = page;
        if let Some(reached) = reached {
            match self.wanted.from_start {
                true => (self.wanted.after, self.over) = (reached, self.over || reached <= self.wanted.after),
                // There is none before the first, and no bound is written as 0.
                false => (self.wanted.before, self.over) = (reached, self.over || reached <= self.wanted.after + 1),
            }
        }
        Ok(Some(entries))
    }

    /// Where the trail ended when the last page was told, without entries.
    pub fn end(&self) -> &TrailBody {
        &self.end
    }
}

/// An export on its way. Its pieces, one behind the other, are the file; its last line proves that it is whole.
#[derive(Debug)]
pub struct Exporting(Streaming<v1::TrailLines>);

impl Exporting {
    /// The next bytes; none at the end. An export that broke off is not gone on with: begin a new one.
    pub async fn piece(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let piece = self.0.message().await.map_err(|status| broke_off("export", &status))?;
        Ok(piece.map(|piece| piece.bytes))
    }
}

impl Client {
    /// The audit trail. It tells everything that was durable when it was asked.
    pub fn trail(&self, wanted: Wanted) -> Trail {
        Trail { client: self.clone(), wanted, over: false, end: TrailBody::default() }
    }

    /// All of the trail that is kept, as lines of JSON.
    pub async fn export_trail(&self) -> Result<Exporting, Error> {
        let send = |mut to: To, ask| async move { to.export_trail(ask).await };
        self.call(Nature::Look, SEARCH, v1::ExportTrailRequest {}, send).await.map(Exporting)
    }

    /// Has the server walk through its whole trail. One that is not whole is an error that names the place.
    pub async fn verify_trail(&self) -> Result<ProofBody, Error> {
        let send = |mut to: To, ask| async move { to.verify_trail(ask).await };
        let found = self.call(Nature::Look, WALK, v1::VerifyTrailRequest {}, send).await?;
        if found.whole {
            return Ok(found.into());
        }
        let at =
            if found.file.is_empty() { String::new() } else { format!("{} at byte {}: ", found.file, found.offset) };
        let told = v1::Problem::of(Code::Corrupt, format!("{at}{}; compare it with an export", found.why));
        let offset = (!found.file.is_empty()).then_some(found.offset);
        Err(v1::Problem { file: found.file, offset, reason: found.why, ..told }.into())
    }
}
