//! What a trace is made from: the audit entries of a resource, its state, its targets, and the exported chain.

use futures::TryStreamExt;
use leasehold::json::{AuditEntryBody, ResourceBody};
use leasehold::{AuditFilter, Client, Code, Error};
use leasehold_server::audit::{ExportTail, ExportTailError, HeadCheck, hex};
use leasehold_server::dashboard::trace_file::{TraceHead, TraceParameters, read_chain};

use crate::output::CommandError;
use crate::resource_sentence::{AgesByLease, hold_sentence, renewal_ages};

/// Most bytes of the chain in a file.
const MAX_CHAIN_BYTES: usize = 64 << 20;

/// A resource and its past.
pub struct TraceData {
    pub parameters: TraceParameters,
    /// Newest first.
    pub entries: Vec<AuditEntryBody>,
    /// The end of the audit log.
    pub head: TraceHead,
    /// Why it is held or free; none if the caller may not see it, or it does not exist now.
    pub sentence: Option<String>,
}

/// The chain of a file, or why it has none.
pub enum ChainResult {
    Included(String),
    /// The caller did not want it.
    Omitted,
    /// With the exit code.
    Missing(String, u8),
}

/// Whether a query failed because the caller may not make it, or because nothing is there.
fn is_hidden(error: &Error) -> bool {
    matches!(error.code(), Some(Code::PermissionDenied | Code::NotFound))
}

/// The result of a query, if the caller may make it and something is there.
fn visible<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if is_hidden(&error) => Ok(None),
        other => other.map(Some),
    }
}

impl TraceData {
    /// Reads the latest `limit` entries of a resource, and what is known of it besides.
    pub async fn read(client: &Client, resource: &str, limit: u32, now_ms: u64) -> Result<Self, Error> {
        let view = visible(client.show(resource).await)?;
        let status = visible(client.status().await)?;
        let coverage = visible(client.coverage(resource).await)?;
        let ages = visible(renewal_ages(client, resource).await)?.unwrap_or_default();
        let (entries, head, has_older) = latest_entries(client, resource, limit).await?;
        if entries.is_empty() {
            return Err(nothing_recorded(resource, view.is_some()));
        }
        let targets = coverage.into_iter().flat_map(|coverage| coverage.targets).map(|target| target.name);
        let parameters = TraceParameters {
            targets: targets.filter(|name| !name.is_empty()).collect(),
            silent: view.as_ref().map(|view| silent_leases(view, &ages, now_ms)).unwrap_or_default(),
            has_older,
            // A server whose clock is ahead has recorded something after this machine's present.
            ..TraceParameters::new(resource, now_ms.max(entries[0].wall_ms))
        };
        let sentence = view.zip(status).map(|(view, status)| hold_sentence(&view, &ages, status.time_ms));
        Ok(Self { parameters, entries, head, sentence })
    }

    /// Exports the chain from the oldest entry on. The entries are then those of the chain: it may have grown meanwhile.
    pub async fn read_chain(&mut self, client: &Client) -> Result<ChainResult, CommandError> {
        let first = self.entries.last().map_or(1, |entry| entry.entry);
        let exported = match export_from(client, first).await {
            Err(ExportError::Server(error)) if error.code() == Some(Code::PermissionDenied) => {
                return Ok(ChainResult::Missing(error.to_string(), error.exit_code()));
            }
            Err(ExportError::Server(error)) => return Err(error.into()),
            Err(ExportError::Tail(error @ ExportTailError::TooLarge { .. })) => {
                let error = Error::new(Code::ResourceExhausted, format!("{error}; trace fewer entries with --limit"));
                return Ok(ChainResult::Missing(error.to_string(), error.exit_code()));
            }
            Err(ExportError::Tail(error)) => return Err(Error::new(Code::Corrupt, error.to_string()).into()),
            Ok(exported) => exported,
        };
        let damaged = |reason: String| Error::new(Code::Corrupt, format!("audit log of the server: {reason}"));
        let chain = String::from_utf8(exported).map_err(|_| damaged("not UTF-8 text; export it again".to_owned()))?;
        let resource = &self.parameters.resource;
        let (proof, entries) =
            read_chain(&chain, resource, HeadCheck::default()).map_err(|error| damaged(error.to_string()))?;
        if entries.is_empty() {
            return Err(nothing_recorded(resource, true).into());
        }
        self.parameters.now_ms = self.parameters.now_ms.max(entries[0].wall_ms);
        self.entries = entries;
        self.head = TraceHead { entry: proof.last, hash: hex(&proof.hash) };
        Ok(ChainResult::Included(chain))
    }
}

/// The latest entries, newest first, the end of the log, and whether there are older entries.
async fn latest_entries(
    client: &Client,
    resource: &str,
    limit: u32,
) -> Result<(Vec<AuditEntryBody>, TraceHead, bool), Error> {
    // One entry more than is shown says whether there are older ones.
    let limit = (limit as usize).saturating_add(1);
    let mut pages =
        client.audit(AuditFilter::new().resource(resource)).page_size(u32::try_from(limit).unwrap_or(u32::MAX));
    let (mut entries, mut head) = (Vec::new(), TraceHead::default());
    while entries.len() < limit
        && let Some(page) = pages.try_next().await?
    {
        entries.extend(page.entries);
        head = TraceHead { entry: page.end.last, hash: page.end.hash };
    }
    let has_older = entries.len() >= limit;
    entries.truncate(limit - 1);
    Ok((entries, head, has_older))
}

/// Held leases that nothing has renewed for half of their ttl: the token number, and the time of the last renewal.
fn silent_leases(view: &ResourceBody, ages: &AgesByLease, now_ms: u64) -> Vec<(u64, u64)> {
    let silent = view.leases.iter().filter_map(|lease| {
        let ttl = lease.ttl_ms?;
        let silence = *ages.get(&lease.lease)?;
        (silence * 2 > ttl).then_some((lease.token_number.parse().ok()?, now_ms.saturating_sub(silence)))
    });
    silent.collect()
}

fn nothing_recorded(resource: &str, exists: bool) -> Error {
    if exists {
        let message = format!(
            "the retained audit log has no entry of {resource}, or you may see none; run `leasehold show` for its state"
        );
        return Error::new(Code::NotFound, message);
    }
    let message = format!(
        "nothing is recorded of {resource}: it never existed, its entries were removed by the retention, or you may not see it; check \
         the name with `leasehold ls` and `leasehold history`"
    );
    Error::new(Code::NotFound, message)
}

enum ExportError {
    Server(Error),
    Tail(ExportTailError),
}

async fn export_from(client: &Client, first: u64) -> Result<Vec<u8>, ExportError> {
    let mut export = client.export_audit().await.map_err(ExportError::Server)?;
    let mut tail = ExportTail::new(first, MAX_CHAIN_BYTES);
    while let Some(chunk) = export.try_next().await.map_err(ExportError::Server)? {
        tail.push(&chunk).map_err(ExportError::Tail)?;
    }
    tail.finish().map_err(ExportError::Tail)
}
