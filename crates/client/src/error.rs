//! Everything that goes wrong, as one type: a stable code, words, what the code carries, the next step.

use std::fmt;

use leasehold_core::lease::Reason;
use leasehold_core::refusal::{Refusal, What};
use leasehold_wire::json::ProblemBody;
use leasehold_wire::{Code, problem, v1};
use serde_json::Value;

/// A refusal, or a failure on the way to one. Printed, it is one line: `CODE{what it carries}: message; next step`.
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<v1::Problem>);

impl Error {
    /// The stable code; none for one that this version does not know.
    pub fn code(&self) -> Option<Code> {
        self.0.known_code()
    }

    /// The stable code's word.
    pub fn word(&self) -> &str {
        &self.0.code
    }

    /// What happened, in words.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do now.
    pub fn next_step(&self) -> &str {
        &self.0.next_step
    }

    /// What a command line ends with.
    pub fn exit(&self) -> u8 {
        self.code().map_or(1, Code::exit)
    }

    /// Whether nobody knows if it happened: the connection broke after the request had left.
    pub fn is_indeterminate(&self) -> bool {
        self.code() == Some(Code::Indeterminate)
    }

    /// Whether nobody decided, and nothing happened.
    pub fn is_unavailable(&self) -> bool {
        matches!(self.code(), Some(Code::Unavailable | Code::NotLeader))
    }

    /// Why the lease is over, if that is the error.
    pub fn lost(&self) -> Option<Reason> {
        self.0.lost()
    }

    /// What the code carries here, by name, in the order of the table of codes.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let body = serde_json::to_value(self.body()).unwrap_or(Value::Null);
        let names = self.code().into_iter().flat_map(Code::carries);
        names.filter_map(|name| Some((name, shown(body.get(name)?)?))).collect()
    }

    /// The error as the HTTP interface tells it.
    pub fn body(&self) -> ProblemBody {
        (*self.0).clone().into()
    }

    /// A wrong setting.
    pub fn config(key: &str, message: impl Into<String>) -> Self {
        let told = v1::Problem::of(Code::Config, message);
        Self(Box::new(v1::Problem { key: key.into(), next_step: "Change it and try again.".into(), ..told }))
    }

    /// A wrong setting in a file.
    pub fn in_file(file: &str, line: Option<u64>, key: &str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let told = v1::Problem::of(Code::Config, reason.clone());
        Self(Box::new(v1::Problem { file: file.into(), line, key: key.into(), reason, ..told }))
    }

    /// A line of a file that is damaged.
    pub fn damaged(file: &str, line: u64, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let told = v1::Problem::of(Code::Corrupt, format!("{file}: {reason}"));
        Self(Box::new(v1::Problem { file: file.into(), line: Some(line), reason, ..told }))
    }

    /// An error with its code and its words.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(v1::Problem::of(code, message)))
    }

    /// The same error with another next step.
    pub fn then(mut self, next_step: &str) -> Self {
        self.0.next_step = next_step.into();
        self
    }

    /// A field that holds what it may not.
    pub(crate) fn invalid(field: &str, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        let told = v1::Problem::of(Code::InvalidArgument, format!("{field}: {reason}"));
        Self(Box::new(v1::Problem { field: field.into(), reason, ..told }))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let told = v1::Problem::of(Code::Unavailable, message);
        Self(Box::new(v1::Problem { next_step: "Start a server, or name the address of another.".into(), ..told }))
    }

    /// Without a request id there is no retry protection, and the next step says so.
    pub(crate) fn indeterminate(message: impl Into<String>, request_id: Option<String>) -> Self {
        let mut told = v1::Problem::of(Code::Indeterminate, message);
        match request_id {
            Some(id) => told.request_id = id,
            None => told.next_step = "Look at what is there before you ask again.".into(),
        }
        Self(Box::new(told))
    }

    /// An answer that no server of this version gives.
    pub(crate) fn garbled(why: impl fmt::Display) -> Self {
        Self::new(Code::FrameError, format!("the server's answer makes no sense: {why}"))
    }

    /// Whether the session is over, or was never this server's.
    pub(crate) fn session_over(&self) -> bool {
        self.lost() == Some(Reason::Session)
            || (self.code() == Some(Code::NotFound) && self.0.about == What::Session.word())
    }

    pub(crate) fn leader(&self) -> Option<&str> {
        (self.code() == Some(Code::NotLeader)).then_some(self.0.leader.as_str())
    }
}

/// A carried value as it stands in a line; none if there is nothing to tell.
fn shown(value: &Value) -> Option<String> {
    match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        Value::Array(members) if members.is_empty() => None,
        Value::Array(members) => {
            let holders = members.iter().filter_map(|member| member.get("holder")?.as_str());
            Some(holders.collect::<Vec<_>>().join(" > "))
        }
        other => Some(other.to_string()),
    }
}

impl From<v1::Problem> for Error {
    fn from(told: v1::Problem) -> Self {
        Self(Box::new(told))
    }
}

impl From<&Refusal> for Error {
    fn from(refusal: &Refusal) -> Self {
        problem(refusal).into()
    }
}

impl From<Box<v1::Problem>> for Error {
    fn from(told: Box<v1::Problem>) -> Self {
        Self(told)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // A reason that the message spells out is not said twice.
        let fields = self.fields().into_iter().filter(|(name, value)| *name != "reason" || !value.contains(' '));
        let carried: Vec<_> = fields.map(|(_, value)| value).collect();
        write!(f, "{}", self.word())?;
        if !carried.is_empty() {
            write!(f, "{{{}}}", carried.join(", "))?;
        }
        write!(f, ": {}", self.message())?;
        // Most refusals end with the next step already.
        if self.message().contains("; ") || self.next_step().is_empty() {
            return Ok(());
        }
        let mut step = self.next_step().trim_end_matches('.').chars();
        let first = step.next().map(|c| c.to_ascii_lowercase());
        write!(f, "; {}{}", first.map(String::from).unwrap_or_default(), step.as_str())
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::refusal::{Cycle, Member};
    use leasehold_core::token::TokenError;

    #[test]
    fn an_error_is_one_line_with_code_fields_words_and_next_step() {
        let member = |holder: &str| Member { holder: holder.into(), waits_for: "x".into() };
        let cycle = Cycle { members: vec![member("a"), member("b")], length: 2 };
        let table = [
            (Error::from(&Refusal::Busy { position: 2 }), "BUSY{2}: held by another; wait (place 2 in the queue) or"),
            (Error::from(&Refusal::Lost(Reason::Ttl)), "LEASE_LOST{expired, ttl}: the lease is over"),
            (Error::from(&Refusal::Token(TokenError::Checksum)), "TOKEN_INVALID{checksum}: "),
            (
                Error::from(&Refusal::Invalid { field: "ttl", reason: "at least 100 ms" }),
                "INVALID_ARGUMENT{ttl}: ttl: at",
            ),
            (Error::from(&Refusal::Deadlock(Box::new(cycle))), "DEADLOCK{a > b}: waiting would close"),
            (Error::from(&Refusal::Cancelled), "CANCELLED: the wait was taken back; nothing; ask again if you"),
            (
                Error::in_file("a.toml", Some(3), "ttl", "a number; write 10s"),
                "CONFIG{a.toml, 3, ttl}: a number; write 10s",
            ),
        ];
        for (error, begins) in table {
            assert!(error.to_string().starts_with(begins), "{error}");
            assert!(!error.to_string().contains('\n') && error.exit() != 0);
        }
    }

    #[test]
    fn a_code_of_a_newer_server_is_still_an_error() {
        let told = v1::Problem { code: "NEW".into(), message: "something else".into(), ..Default::default() };
        let error = Error::from(told);
        assert_eq!((error.code(), error.exit(), error.word()), (None, 1, "NEW"));
        assert_eq!(error.to_string(), "NEW: something else");
    }

    #[test]
    fn an_unknown_outcome_says_how_to_find_out() {
        let with = Error::indeterminate("broke", Some("17.0:42".into()));
        assert_eq!(with.fields(), [("request_id", "17.0:42".to_owned())]);
        let without = Error::indeterminate("broke", None);
        assert_eq!(without.to_string(), "INDETERMINATE: broke; look at what is there before you ask again");
        assert!(without.is_indeterminate() && !without.is_unavailable() && without.exit() == 5);
    }
}
