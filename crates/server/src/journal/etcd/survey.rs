//! What a journal on etcd looks like from outside: who leads, who may, and how etcd is doing.

use std::sync::Arc;

use super::gauge::Gauge;
use super::hold::address;
use super::keys::Keys;
use super::pb::{RangeRequest, StatusResponse};
use super::reach::Reach;
use super::trouble::Trouble;
use super::{Etcd, Refused};
use crate::journal::OpenError;

/// Whoever asks etcd about the servers over one journal. It changes nothing.
pub struct Survey {
    reach: Arc<Reach>,
    keys: Keys,
    quota: u64,
}

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surveyed {
    /// Where the server is that leads.
    pub leader: Option<String>,
    /// Where the servers are that may lead.
    pub servers: Vec<String>,
    /// etcd, member by member.
    pub members: Vec<Member>,
    /// Bytes of the fullest database, and how many it may have.
    pub database: (u64, u64),
    /// Why it is not known who leads.
    pub problem: Option<String>,
}

/// A member of etcd.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member {
    /// Where it is asked.
    pub endpoint: String,
    /// Its version.
    pub version: String,
    /// Whether it leads etcd.
    pub leads: bool,
    /// Bytes of its database, and how many of them are in use.
    pub database: (u64, u64),
    /// What is wrong with it.
    pub problem: Option<String>,
}

impl Etcd {
    /// A way to look at the servers and at etcd, apart from what serves.
    pub fn survey(&self) -> Result<Survey, OpenError> {
        let reach = Reach::new(&self.entry).map_err(|why| OpenError::Etcd(Refused::Unreachable { why }))?;
        Ok(Survey { reach: Arc::new(reach), keys: Keys::under(&self.prefix), quota: self.quota })
    }
}

impl Survey {
    /// Looks. What cannot be asked is told as a problem.
    pub async fn look(&self) -> Surveyed {
        let (told, servers) = tokio::join!(self.reach.each_status(), self.servers());
        let gauge = Gauge::default();
        gauge.look(told.iter().filter_map(|(_, told)| told.as_ref().ok()), self.quota);
        let members = told.iter().map(|(endpoint, told)| member(endpoint, told)).collect();
        let (leader, servers, problem) = match servers {
            Ok((leader, servers)) => (leader, servers, None),
            Err(trouble) => (None, Vec::new(), Some(trouble.to_string())),
        };
        Surveyed { leader, servers, members, database: gauge.read(), problem }
    }

    /// Whether another server than the one at this address may lead.
    pub async fn has_other(&self, than: &str) -> bool {
        self.servers().await.is_ok_and(|(_, servers)| servers.iter().any(|server| server != than))
    }

    async fn servers(&self) -> Result<(Option<String>, Vec<String>), Trouble> {
        let leader = RangeRequest { key: self.keys.leader(), ..Default::default() };
        let leader = self.reach.range_tried(leader).await?.kvs.pop();
        let (key, range_end) = self.keys.members();
        let members = self.reach.range_tried(RangeRequest { key, range_end, ..Default::default() }).await?;
        let mut servers: Vec<_> = members.kvs.iter().map(|member| address(&member.value)).collect();
        servers.sort_unstable();
        // A server that came back soon has its old place beside the new one until that is over.
        servers.dedup();
        Ok((leader.map(|leader| address(&leader.value)), servers))
    }
}

fn member(endpoint: &str, told: &Result<StatusResponse, Trouble>) -> Member {
    let endpoint = endpoint.to_owned();
    match told {
        Ok(told) => {
            let own = told.header.as_ref().map_or(0, |header| header.member_id);
            let bytes = |bytes: i64| u64::try_from(bytes).unwrap_or(0);
            let problem = if told.leader == 0 { Some("it knows no leader of etcd".to_owned()) } else { None };
            Member {
                endpoint,
                version: told.version.clone(),
                leads: own != 0 && told.leader == own,
                database: (bytes(told.db_size), bytes(told.db_size_in_use)),
                problem: told.errors.first().cloned().or(problem),
            }
        }
        Err(trouble) => Member { endpoint, problem: Some(trouble.to_string()), ..Member::default() },
    }
}
