//! The error type of the client: a stable code, a message, the fields of the code, and the next step.

use std::fmt;

use leasehold_core::holder::Loss;
use leasehold_core::lease::EndReason;
use leasehold_core::name::NameError;
use leasehold_core::refusal::{NotCurrent, Refusal, RefusalSubject};
use leasehold_wire::json::ProblemBody;
use leasehold_wire::{Code, problem, v1};
use serde_json::Value;

/// A refusal by the grantor, or a failure to reach it.
///
/// Its `Display` is one line: `CODE{fields}: message; next step`. Decide by [`Error::code`], [`Error::is_retryable`],
/// [`Error::is_permanent`] and [`Error::outcome_unknown`], not by the text.
#[derive(Clone, Debug, PartialEq)]
pub struct Error(Box<v1::Problem>);

impl Error {
    /// The stable code; none if this version of the client does not know it.
    pub fn code(&self) -> Option<Code> {
        self.0.known_code()
    }

    /// Name of the stable code, also of one that this version does not know.
    pub fn code_name(&self) -> &str {
        &self.0.code
    }

    /// What happened.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// What to do now.
    pub fn next_step(&self) -> &str {
        &self.0.next_step
    }

    #[doc(hidden)]
    pub fn exit_code(&self) -> u8 {
        self.code().map_or(1, Code::exit)
    }

    /// Whether it is unknown if the request was executed: the connection broke after the request was sent.
    pub fn outcome_unknown(&self) -> bool {
        self.code() == Some(Code::Indeterminate)
    }

    /// Whether no server decided the request and nothing happened: the same request can be sent again later.
    pub fn is_retryable(&self) -> bool {
        matches!(self.code(), Some(Code::Unavailable | Code::NotLeader))
    }

    /// Whether every retry of the same request is refused too: change the request, the credentials or the setting instead. False
    /// for a code that this version does not know.
    pub fn is_permanent(&self) -> bool {
        self.code().is_some_and(Code::is_permanent)
    }

    /// Why the lease ended, if that is the error.
    pub fn end_reason(&self) -> Option<EndReason> {
        self.0.lost()
    }

    /// Fields of the code with their values, in the order of the table of codes.
    pub fn fields(&self) -> Vec<(&'static str, String)> {
        let body = serde_json::to_value(self.body()).unwrap_or(Value::Null);
        let names = self.code().into_iter().flat_map(Code::carries);
        names.filter_map(|name| Some((name, field_text(body.get(name)?)?))).collect()
    }

    /// The error as JSON, with the field names of the HTTP API.
    pub fn body(&self) -> ProblemBody {
        (*self.0).clone().into()
    }

    /// An invalid setting.
    #[doc(hidden)]
    pub fn config(key: &str, message: impl Into<String>) -> Self {
        let problem = v1::Problem::of(Code::Config, message);
        Self(Box::new(v1::Problem {
            key: key.into(),
            next_step: "Change the setting and try again.".into(),
            ..problem
        }))
    }

    /// An invalid setting in a file.
    #[doc(hidden)]
    pub fn config_in_file(file: &str, line: Option<u64>, key: &str, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let problem = v1::Problem::of(Code::Config, reason.clone());
        Self(Box::new(v1::Problem { file: file.into(), line, key: key.into(), reason, ..problem }))
    }

    /// A damaged line of a file.
    #[doc(hidden)]
    pub fn corrupt_file(file: &str, line: u64, reason: impl Into<String>) -> Self {
        let reason = reason.into();
        let problem = v1::Problem::of(Code::Corrupt, format!("{file}: {reason}"));
        Self(Box::new(v1::Problem { file: file.into(), line: Some(line), reason, ..problem }))
    }

    /// An error with a code and a message.
    #[doc(hidden)]
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self(Box::new(v1::Problem::of(code, message)))
    }

    /// Replaces the next step.
    #[doc(hidden)]
    #[must_use]
    pub fn with_next_step(mut self, next_step: &str) -> Self {
        self.0.next_step = next_step.into();
        self
    }

    /// A field with an invalid value.
    pub(crate) fn invalid(field: &str, reason: impl fmt::Display) -> Self {
        let reason = reason.to_string();
        let problem = v1::Problem::of(Code::InvalidArgument, format!("{field}: {reason}"));
        Self(Box::new(v1::Problem { field: field.into(), reason, ..problem }))
    }

    pub(crate) fn unavailable(message: impl Into<String>) -> Self {
        let problem = v1::Problem::of(Code::Unavailable, message);
        Self(Box::new(v1::Problem {
            next_step: "Check that a server is running at one of the endpoints.".into(),
            ..problem
        }))
    }

    /// Without a request id a retry may execute the request twice, and the next step says so.
    pub(crate) fn indeterminate(message: impl Into<String>, request_id: Option<String>) -> Self {
        let mut problem = v1::Problem::of(Code::Indeterminate, message);
        match request_id {
            Some(id) => problem.request_id = id,
            None => problem.next_step = "Read the current state before you retry.".into(),
        }
        Self(Box::new(problem))
    }

    /// A reply that no server of this version sends.
    pub(crate) fn invalid_reply(reason: impl fmt::Display) -> Self {
        Self::new(Code::FrameError, format!("invalid reply from the server: {reason}"))
    }

    /// Whether the session has ended, or is unknown to the server.
    pub(crate) fn is_session_ended(&self) -> bool {
        self.end_reason() == Some(EndReason::Session)
            || (self.code() == Some(Code::NotFound) && self.0.subject == RefusalSubject::Session.word())
    }

    pub(crate) fn leader(&self) -> Option<&str> {
        (self.code() == Some(Code::NotLeader)).then_some(self.0.leader.as_str())
    }
}

/// Text of a field in the one-line form; none if the field is empty.
fn field_text(value: &Value) -> Option<String> {
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
    fn from(problem: v1::Problem) -> Self {
        Self(Box::new(problem))
    }
}

impl From<&Refusal> for Error {
    fn from(refusal: &Refusal) -> Self {
        problem(refusal).into()
    }
}

/// An invalid name is refused before a request is sent: a query would only find nothing.
impl From<NameError> for Error {
    fn from(error: NameError) -> Self {
        Self::from(&Refusal::Name(error))
    }
}

impl From<Box<v1::Problem>> for Error {
    fn from(problem: Box<v1::Problem>) -> Self {
        Self(problem)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The message already contains a reason in words, and everything about the holder of a busy resource.
        let fields = if self.code() == Some(Code::Busy) { Vec::new() } else { self.fields() };
        let fields = fields.into_iter().filter(|(name, value)| *name != "reason" || !value.contains(' '));
        let values: Vec<_> = fields.map(|(_, value)| value).collect();
        write!(f, "{}", self.code_name())?;
        if !values.is_empty() {
            write!(f, "{{{}}}", values.join(", "))?;
        }
        write!(f, ": {}", self.message())?;
        // Most refusals already end with the next step.
        if self.message().contains("; ") || self.next_step().is_empty() {
            return Ok(());
        }
        let mut step = self.next_step().trim_end_matches('.').chars();
        let first = step.next().map(|c| c.to_ascii_lowercase());
        write!(f, "; {}{}", first.map(String::from).unwrap_or_default(), step.as_str())
    }
}

impl From<Loss> for Error {
    fn from(loss: Loss) -> Self {
        match loss {
            Loss::Ended(reason) => Self::from(&Refusal::Lost(reason)),
            Loss::NotCurrent => Self::from(&Refusal::NotCurrent(NotCurrent::Unknown)),
        }
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;
    use leasehold_core::refusal::{Cycle, CycleMember};
    use leasehold_core::token::TokenError;

    #[test]
    fn an_error_is_one_line_with_code_fields_message_and_next_step() {
        let member = |holder: &str| CycleMember { holder: holder.into(), waits_for: "x".into() };
        let cycle = Cycle { members: vec![member("a"), member("b")], length: 2 };
        let table = [
            (Error::from(&Refusal::busy(2)), "BUSY: held by another holder (queue position 2); "),
            (Error::from(&Refusal::Lost(EndReason::Ttl)), "LEASE_LOST{expired, ttl}: "),
            (Error::from(&Refusal::Token(TokenError::Checksum)), "TOKEN_INVALID{checksum}: "),
            (
                Error::from(&Refusal::Invalid { field: "ttl", reason: "at least 100 ms" }),
                "INVALID_ARGUMENT{ttl}: ttl: at",
            ),
            (Error::from(&Refusal::Deadlock(Box::new(cycle))), "DEADLOCK{a > b}: "),
            (Error::from(&Refusal::Cancelled), "CANCELLED: "),
            (
                Error::config_in_file("a.toml", Some(3), "ttl", "a number; write 10s"),
                "CONFIG{a.toml, 3, ttl}: a number; write 10s",
            ),
        ];
        for (error, prefix) in table {
            assert!(error.to_string().starts_with(prefix), "{error}");
            assert!(!error.to_string().contains('\n') && error.exit_code() != 0);
        }
    }

    #[test]
    fn an_unknown_code_of_a_newer_server_is_still_an_error() {
        let problem = v1::Problem { code: "NEW".into(), message: "something else".into(), ..Default::default() };
        let error = Error::from(problem);
        assert_eq!((error.code(), error.exit_code(), error.code_name()), (None, 1, "NEW"));
        assert_eq!(error.to_string(), "NEW: something else");
    }

    #[test]
    fn an_error_that_can_be_retried_is_never_permanent() {
        for code in Code::ALL {
            let error = Error::new(*code, "a test");
            assert!(!(error.is_permanent() && (error.is_retryable() || error.outcome_unknown())), "{error}");
        }
        assert!(Error::from(&Refusal::Lost(EndReason::Operator)).is_permanent());
        assert!(!Error::from(&Refusal::Busy { position: 1, holder: None }).is_permanent());
    }

    #[test]
    fn an_unknown_outcome_names_the_next_step() {
        let with = Error::indeterminate("broke", Some("17.0:42".into()));
        assert_eq!(with.fields(), [("request_id", "17.0:42".to_owned())]);
        let without = Error::indeterminate("broke", None);
        assert_eq!(without.to_string(), "INDETERMINATE: broke; read the current state before you retry");
        assert!(without.outcome_unknown() && !without.is_retryable() && without.exit_code() == 5);
    }
}
