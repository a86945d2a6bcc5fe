//! Bodies of commands about cached keys, and their outcome.

use leasehold_core::refusal::Refusal;
use serde::{Deserialize, Serialize};

use super::hex;
use super::request_fields::{decimal, session};
use crate::duration::HumanDuration;
use crate::v1;
use crate::v1::cache_command::Command;
use crate::v1::request::Operation;

fn cache(key: &str, command: Command) -> Operation {
    Operation::Cache(v1::CacheCommand { key: key.into(), command: Some(command) })
}

/// The reader or writer of a cached key: `POST /v1/cache/{key}:read` and `:intend`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct CacheActorBody {
    /// Name of the reader or writer.
    pub holder: String,
    /// Id of the session that carries the read lease or intent, and receives its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Lifetime of the read lease or intent.
    pub ttl: HumanDuration,
}

impl CacheActorBody {
    fn into_actor(self) -> Result<v1::CacheActor, Refusal> {
        let session = session(self.session.as_deref())?;
        Ok(v1::CacheActor { holder: self.holder, session, ttl_ms: self.ttl.millis() })
    }

    /// Converts the body into a read of this key.
    pub fn into_read(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::Read(self.into_actor()?)))
    }

    /// Converts the body into an intent to write this key.
    pub fn into_intend(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::Intend(self.into_actor()?)))
    }
}

/// `POST /v1/cache/{key}:get_or_fill`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct GetOrFillBody {
    /// Name of the reader.
    pub holder: String,
    /// Id of the session that carries the read lease or the task, and receives its events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<String>,
    /// Lifetime of the read lease or the task.
    pub ttl: HumanDuration,
    /// A version that the reader did not find in the cache; decimal text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missing_version: Option<String>,
}

impl GetOrFillBody {
    /// Converts the body into the request for this key.
    pub fn into_operation(self, key: &str) -> Result<Operation, Refusal> {
        let missing = self.missing_version.as_deref().map(|text| decimal("missing_version", text)).transpose()?;
        let actor = CacheActorBody { holder: self.holder, session: self.session, ttl: self.ttl }.into_actor()?;
        Ok(cache(key, Command::GetOrFill(v1::GetOrFill { actor: Some(actor), missing_version: missing })))
    }
}

/// A read lease: `POST /v1/cache/{key}:renew` and `:invalidated`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct ReadLeaseBody {
    /// Number of the read lease.
    pub lease: String,
}

impl ReadLeaseBody {
    /// Converts the body into a renewal for this key.
    pub fn into_renew(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::RenewRead(decimal("lease", &self.lease)?)))
    }

    /// Converts the body into the confirmation that the copy of this key was dropped.
    pub fn into_invalidated(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::Invalidated(decimal("lease", &self.lease)?)))
    }
}

/// An intent: `POST /v1/cache/{key}:commit`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct IntentBody {
    /// Number of the intent.
    pub intent: String,
}

impl IntentBody {
    /// Converts the body into the request for this key.
    pub fn into_operation(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::Commit(decimal("intent", &self.intent)?)))
    }
}

/// `POST /v1/cache/{key}:abort`: nothing was written or filled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct AbortBody {
    /// Number of the intent or of the task to fill.
    pub number: String,
}

impl AbortBody {
    /// Converts the body into the request for this key.
    pub fn into_operation(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::Abort(decimal("number", &self.number)?)))
    }
}

/// A task to fill a copy: `POST /v1/cache/{key}:filled`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(expecting = "an object", deny_unknown_fields)]
pub struct FillBody {
    /// Number of the task.
    pub fill: String,
}

impl FillBody {
    /// Converts the body into the request for this key.
    pub fn into_operation(self, key: &str) -> Result<Operation, Refusal> {
        Ok(cache(key, Command::Filled(decimal("fill", &self.fill)?)))
    }
}

/// The outcome of a command about a cached key. `outcome` says which of the other fields are present.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct CacheBody {
    /// `read`, `dropped`, `intended`, `committed`, `aborted`, `fill`, `wait` or `filled`.
    pub outcome: String,
    /// Version of the copy: `read`, `committed` and `filled`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Number of the read lease: `read`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<String>,
    /// Number of the intent: `intended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intent: Option<String>,
    /// Number of readers that have not dropped their copies yet: `intended`. Commit when it is 0, or after the event `clear`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<u32>,
    /// Grantor time at which the last of their read leases expires: `intended`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until_ms: Option<u64>,
    /// Number of the task to fill the copy: `fill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fill: Option<String>,
    /// Remaining lifetime of the read lease or the task: `read` and `fill`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub remaining_ms: Option<u64>,
    /// Another caller fills the copy, for at most this long: `wait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait_ms: Option<u64>,
    /// Secret that proves in later requests that the caller was granted the number, in hexadecimal. Send it as `Lease-Secret`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<String>,
}

/// Omits the secret, which must not reach a log.
impl std::fmt::Debug for CacheBody {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CacheBody").field("outcome", &self.outcome).finish_non_exhaustive()
    }
}

impl From<v1::CacheAnswer> for CacheBody {
    fn from(from: v1::CacheAnswer) -> Self {
        use v1::cache_answer::Answer;
        let named = |outcome: &str| Self { outcome: outcome.to_owned(), ..Self::default() };
        let number = |number: u64| Some(number.to_string());
        let secret = |bytes: &[u8]| (!bytes.is_empty()).then(|| hex(bytes));
        match from.answer {
            None => Self::default(),
            Some(Answer::Read(read)) => Self {
                version: number(read.version),
                lease: number(read.lease),
                remaining_ms: Some(read.remaining_ms),
                secret: secret(&read.secret),
                ..named("read")
            },
            Some(Answer::Dropped(_)) => named("dropped"),
            Some(Answer::Intended(intent)) => Self {
                intent: number(intent.intent),
                waiting_for: Some(intent.waiting_for),
                until_ms: Some(intent.until_ms),
                secret: secret(&intent.secret),
                ..named("intended")
            },
            Some(Answer::Committed(version)) => Self { version: number(version), ..named("committed") },
            Some(Answer::Aborted(_)) => named("aborted"),
            Some(Answer::Fill(task)) => Self {
                fill: number(task.token),
                remaining_ms: Some(task.remaining_ms),
                secret: secret(&task.secret),
                ..named("fill")
            },
            Some(Answer::WaitMs(ms)) => Self { wait_ms: Some(ms), ..named("wait") },
            Some(Answer::Filled(version)) => Self { version: number(version), ..named("filled") },
        }
    }
}
