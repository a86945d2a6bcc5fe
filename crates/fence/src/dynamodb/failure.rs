//! Errors of DynamoDB by what they say about the request: not applied, not applied and worth a retry, or unknown.

use std::error::Error as StdError;
use std::time::Duration;

use aws_sdk_dynamodb::error::{DisplayErrorContext, ProvideErrorMetadata, SdkError};

use crate::Error;
use crate::error::with_causes;

/// Why a request has no reply, or no good one.
#[derive(Debug)]
pub(super) enum Failure {
    /// The condition of the request is not met.
    Condition,
    /// Another transaction uses an item of the request.
    Conflict,
    /// The table or the account has no capacity left. The text names the reason.
    Throttled(String),
    /// DynamoDB rejected the request, or it was never sent.
    Rejected(Error),
    /// The request may have been applied.
    Unknown(Error),
}

impl Failure {
    /// The failure of a request that DynamoDB did not reply to.
    pub(super) fn no_reply(waited: Duration) -> Self {
        Self::Unknown(Error::Storage(format!("DynamoDB did not reply within {waited:?}").into()))
    }
}

impl<E> From<SdkError<E>> for Failure
where
    E: ProvideErrorMetadata + StdError + Send + Sync + 'static,
{
    fn from(error: SdkError<E>) -> Self {
        match &error {
            SdkError::ConstructionFailure(_) => Self::Rejected(unsent("INVALID_ARGUMENT", &error)),
            SdkError::DispatchFailure(failure) if failure.is_other() && is_unsigned(&error) => {
                Self::Rejected(unsent("UNAUTHENTICATED", &error))
            }
            SdkError::ServiceError(reply) => {
                let status = reply.raw().status().as_u16();
                let message = reply.err().message().unwrap_or("no message").to_owned();
                match reply.err().code().map(str::to_owned) {
                    // A server error, a proxy's error, or a request that DynamoDB took too long to read.
                    None => Self::Unknown(Error::Storage(error.into())),
                    _ if status >= 500 || status == 408 => Self::Unknown(Error::Storage(error.into())),
                    Some(code) => classify(&code, &message, error),
                }
            }
            _ => Self::Unknown(Error::Storage(error.into())),
        }
    }
}

/// The failure of a request that DynamoDB rejected with this code.
fn classify<E>(code: &str, message: &str, error: SdkError<E>) -> Failure
where
    E: StdError + Send + Sync + 'static,
{
    let (stable, next_step) = match code {
        "ConditionalCheckFailedException" => return Failure::Condition,
        "TransactionConflictException" | "TransactionInProgressException" => return Failure::Conflict,
        "ThrottlingException" | "Throttling" | "ProvisionedThroughputExceededException" | "RequestLimitExceeded" => {
            return Failure::Throttled(format!("{code}: {message}"));
        }
        "AccessDeniedException" | "AccessDenied" | "NotAuthorized" | "OptInRequired" => {
            ("PERMISSION_DENIED", "allow the action on the tables in the policy of this role")
        }
        "UnrecognizedClientException"
        | "InvalidClientTokenId"
        | "ExpiredToken"
        | "ExpiredTokenException"
        | "InvalidSignatureException"
        | "SignatureDoesNotMatch"
        | "IncompleteSignature"
        | "IncompleteSignatureException"
        | "MissingAuthenticationToken"
        | "MissingAuthenticationTokenException"
        | "RequestExpired" => {
            ("UNAUTHENTICATED", "renew the credentials of this process, and compare its clock with the time")
        }
        "ResourceNotFoundException" | "TableNotFoundException" => {
            ("NOT_FOUND", "check the name of the table and the region, or create the table of marks with `install`")
        }
        "ValidationException" | "SerializationException" => ("INVALID_ARGUMENT", "change the items of the write"),
        _ => return Failure::Rejected(Error::Storage(error.into())),
    };
    let message = format!("DynamoDB rejected the request: {code}: {message}; nothing was applied, {next_step}");
    Failure::Rejected(Error::Rejected { code: stable, message })
}

/// Whether a request was not sent because there are no credentials to sign it. The SDK has no kind for that.
fn is_unsigned<E: StdError + Send + Sync + 'static>(error: &SdkError<E>) -> bool {
    let text = DisplayErrorContext(error).to_string();
    text.contains("auth scheme") || text.contains("credentials")
}

/// The error of a request that was never sent.
fn unsent<E: StdError + Send + Sync + 'static>(code: &'static str, error: &SdkError<E>) -> Error {
    let cause = with_causes(error);
    let message = format!(
        "the request was not sent: {cause}; nothing was applied, check the credentials and the region of this process"
    );
    Error::Rejected { code, message }
}
