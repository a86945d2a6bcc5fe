//! The names of each kind, from the files of this user or from a server.

use std::cell::RefCell;
use std::collections::BTreeSet;

use futures::TryStreamExt;
use leasehold::{Client, Error};

use super::command_line::{CompletedWord, NameKind};
use crate::profile;

/// Most entries that are read to find names. A listing of a large server would take longer than a person waits.
const MAX_ENTRIES: usize = 5_000;

/// Names that no server is asked for.
pub fn local(completed: &CompletedWord) -> Option<BTreeSet<String>> {
    (completed.kind == NameKind::Profile).then(|| profile::names().unwrap_or_default())
}

/// Adds the names to `found` as they arrive.
pub async fn query(client: Client, completed: &CompletedWord, found: &RefCell<BTreeSet<String>>) -> Result<(), Error> {
    let add = |name: &str| {
        found.borrow_mut().insert(name.to_owned());
    };
    let resource = completed.resource.as_deref();
    match completed.kind {
        NameKind::Resource => {
            for_each_resource(&client, &completed.typed, |name| add(name)).await?;
        }
        NameKind::Prefix => {
            for_each_resource(&client, &completed.typed, |name| add(next_segment(name, &completed.typed))).await?;
        }
        NameKind::Holder => {
            let mut pages = client.list_leases("");
            let mut read = 0;
            while read < MAX_ENTRIES
                && let Some(page) = pages.try_next().await?
            {
                read += page.leases.len();
                page.leases.iter().for_each(|listed| add(&listed.lease.holder));
            }
        }
        NameKind::PastHolder => client.usage(None).await?.iter().for_each(|usage| add(&usage.holder)),
        NameKind::Waiter => {
            let Some(resource) = resource else { return Ok(()) };
            client.waiters(resource).await?.iter().for_each(|waiter| add(&waiter.holder));
        }
        NameKind::Target => {
            let Some(resource) = resource else { return Ok(()) };
            client.coverage(resource).await?.targets.iter().for_each(|target| add(&target.name));
        }
        NameKind::Charter => client.charters(None).await?.iter().for_each(|(prefix, _)| add(prefix)),
        NameKind::Proposal => {
            client.proposals().await?.iter().for_each(|proposal| add(&proposal.proposal.to_string()));
        }
        NameKind::Profile => {}
    }
    // An empty name completes nothing.
    found.borrow_mut().remove("");
    Ok(())
}

/// Reads the resources that can begin with `typed`: those under its whole segments.
async fn for_each_resource(client: &Client, typed: &str, mut each: impl FnMut(&str)) -> Result<(), Error> {
    let under = typed.rsplit_once('/').map_or("", |(under, _)| under);
    let mut pages = client.list(under);
    let mut read = 0;
    while read < MAX_ENTRIES
        && let Some(page) = pages.try_next().await?
    {
        read += page.resources.len();
        let names = page.resources.iter().map(|resource| resource.resource.as_str());
        names.filter(|name| name.starts_with(typed)).for_each(&mut each);
    }
    Ok(())
}

/// The name up to the end of the segment that is being written.
fn next_segment<'a>(name: &'a str, typed: &str) -> &'a str {
    let rest = name.get(typed.len()..).unwrap_or_default();
    rest.find('/').map_or(name, |at| &name[..typed.len() + at])
}

#[cfg(test)]
mod tests {
    use super::next_segment;

    #[test]
    fn a_prefix_is_completed_segment_by_segment() {
        assert_eq!(next_segment("team/a/jobs", ""), "team");
        assert_eq!(next_segment("team/a/jobs", "te"), "team");
        assert_eq!(next_segment("team/a/jobs", "team/"), "team/a");
        assert_eq!(next_segment("team/a/jobs", "team/a/j"), "team/a/jobs");
        assert_eq!(next_segment("team", "team"), "team");
    }
}
