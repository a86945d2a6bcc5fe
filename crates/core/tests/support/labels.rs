//! Labels: the names that a story gives to leases, sessions, messages and other entities.

use std::collections::BTreeMap;

use leasehold_core::ids::{LeaseId, SessionId};
use leasehold_core::token::{Incarnation, Number, TokenScope};

use super::tokenizer;

/// An entity with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Entity {
    Session { id: SessionId, secret: [u8; 32] },
    Lease(Lease),
    Receipt { queue: String, item: u64, receipt: Number },
    Message { queue: String, item: u64 },
    Cached { key: String, number: Number },
}

/// A lease as its holder knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    pub id: LeaseId,
    pub number: Number,
    pub resource: String,
    pub scope: TokenScope,
    pub incarnation: Incarnation,
}

impl Entity {
    pub fn number(&self) -> Option<Number> {
        match self {
            Self::Lease(lease) => Some(lease.number),
            Self::Receipt { receipt, .. } => Some(*receipt),
            Self::Cached { number, .. } => Some(*number),
            Self::Session { .. } | Self::Message { .. } => None,
        }
    }

    /// Canonical text for comparisons.
    pub fn sign(&self) -> String {
        match self {
            Self::Session { id, .. } => format!("@{id}"),
            Self::Message { item, .. } => format!("item:{item}"),
            _ => format!("#{}", self.number().expect("everything else has a number")),
        }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Labels {
    entities: BTreeMap<String, Entity>,
}

impl Labels {
    pub fn get(&self, label: &str) -> Result<&Entity, String> {
        self.entities.get(label).ok_or_else(|| format!("nothing is called {label} yet"))
    }

    /// Binds a label to an entity. If the label is bound already, the entity must be the same.
    pub fn bind(&mut self, label: &str, entity: &Entity) -> Result<(), String> {
        match self.entities.get(label) {
            None => {
                self.entities.insert(label.to_owned(), entity.clone());
                Ok(())
            }
            Some(known) if known.sign() == entity.sign() => Ok(()),
            Some(known) => Err(format!("{label} is {}, this is {}", known.sign(), entity.sign())),
        }
    }

    pub fn lease(&self, label: &str) -> Result<&Lease, String> {
        match self.get(label)? {
            Entity::Lease(lease) => Ok(lease),
            other => Err(format!("{label} is no lease: {other:?}")),
        }
    }

    pub fn session(&self, label: &str) -> Result<(SessionId, [u8; 32]), String> {
        match self.get(label)? {
            Entity::Session { id, secret } => Ok((*id, *secret)),
            other => Err(format!("{label} is no session: {other:?}")),
        }
    }

    /// The secret of a session that is known by its id only.
    pub fn secret_of(&self, session: SessionId) -> Option<[u8; 32]> {
        self.entities.values().find_map(|entity| match entity {
            Entity::Session { id, secret } if *id == session => Some(*secret),
            _ => None,
        })
    }

    pub fn receipt(&self, label: &str) -> Result<(&str, u64, Number), String> {
        match self.get(label)? {
            Entity::Receipt { queue, item, receipt } => Ok((queue, *item, *receipt)),
            other => Err(format!("{label} is no receipt: {other:?}")),
        }
    }

    pub fn message(&self, label: &str) -> Result<(&str, u64), String> {
        match self.get(label)? {
            Entity::Message { queue, item } => Ok((queue, *item)),
            other => Err(format!("{label} is no message: {other:?}")),
        }
    }

    pub fn cached(&self, label: &str) -> Result<(&str, Number), String> {
        match self.get(label)? {
            Entity::Cached { key, number } => Ok((key, *number)),
            other => Err(format!("{label} is nothing cached: {other:?}")),
        }
    }

    pub fn number(&self, label: &str) -> Result<Number, String> {
        self.get(label)?.number().ok_or_else(|| format!("{label} has no number"))
    }

    /// Canonical text of a lease that is known by its id only.
    pub fn sign_of(&self, id: LeaseId) -> String {
        let known =
            self.entities.values().rev().find(|entity| matches!(entity, Entity::Lease(lease) if lease.id == id));
        known.map_or_else(|| format!("lease:{id}"), Entity::sign)
    }

    /// Replaces labels and durations by their canonical text.
    pub fn normal(&self, text: &str) -> String {
        let sign = |word: String| match self.entities.get(&word) {
            Some(entity) => entity.sign(),
            None => tokenizer::millis(&word).map_or(word, tokenizer::span),
        };
        tokenizer::split(text).into_iter().map(sign).collect::<Vec<_>>().join(" ").replace(" ,", ",")
    }
}

/// A label starts with a capital letter and is not all capitals, unlike an error code.
pub fn is_label(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_uppercase()) && !word.contains('_') && word.len() <= 12
}
