//! What is measured: a server that is there, one of our own with a journal in a file, or several over an etcd of our own.

use std::time::Duration;

use leasehold::Endpoints;

use crate::own::servers::Servers;
use crate::own::{Own, Process};
use crate::told::Failure;

/// What a bench asks.
pub enum Under {
    /// Somebody else's.
    Theirs,
    /// Ours, alone.
    Alone(Own),
    /// Ours, several; which of them leads.
    Several(Servers, usize),
}

impl Under {
    /// The process that decides, where it is our own.
    pub fn process(&self) -> Option<&Process> {
        match self {
            Self::Theirs => None,
            Self::Alone(own) => Some(own.process()),
            Self::Several(servers, leader) => Some(servers.process(*leader)),
        }
    }

    /// Processor time of the one that decides.
    pub fn processor(&self) -> Duration {
        self.process().map_or(Duration::ZERO, Process::processor)
    }

    /// Several servers, if that is what it is.
    pub fn several(&mut self) -> Option<(&mut Servers, &mut usize)> {
        match self {
            Self::Several(servers, leader) => Some((servers, leader)),
            Self::Theirs | Self::Alone(_) => None,
        }
    }
}

/// Where the one that leads is.
pub fn leading(servers: &Servers, leader: usize) -> Result<Endpoints, Failure> {
    Ok(Endpoints::parse(servers.addresses()[leader])?)
}
