//! The table of all error codes: meaning, next step, HTTP status, gRPC status and exit code.

use std::fmt::Write;

use tonic::Code as Grpc;

macro_rules! codes {
    ($($name:ident = $word:literal, carries $carries:literal, http $http:literal, grpc $grpc:ident, exit $exit:literal,
        $means:literal, $next:literal;)+) => {
        /// A stable error code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $means] $name,)+
        }

        impl Code {
            /// Every code, in the order of the reference page.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            const fn row(self) -> CodeRow {
                match self {
                    $(Self::$name => CodeRow {
                        word: $word,
                        carries: $carries,
                        http: $http,
                        grpc: Grpc::$grpc,
                        exit: $exit,
                        means: $means,
                        next_step: $next,
                    },)+
                }
            }
        }
    };
}

struct CodeRow {
    word: &'static str,
    carries: &'static str,
    http: u16,
    grpc: Grpc,
    exit: u8,
    means: &'static str,
    next_step: &'static str,
}

codes! {
    InvalidArgument = "INVALID_ARGUMENT", carries "field, reason", http 400, grpc InvalidArgument, exit 2,
        "A field has an invalid value.", "Change the field and retry.";
    Unauthenticated = "UNAUTHENTICATED", carries "reason", http 401, grpc Unauthenticated, exit 6,
        "The caller is not authenticated.", "Present a valid credential.";
    PermissionDenied = "PERMISSION_DENIED", carries "reason", http 403, grpc PermissionDenied, exit 6,
        "The caller lacks permission.", "Request the permission, or use another identity.";
    NotFound = "NOT_FOUND", carries "subject", http 404, grpc NotFound, exit 1,
        "The subject does not exist, or the caller may not see it.", "Check the name, list what exists, and check the grants of the identity.";
    MethodNotAllowed = "METHOD_NOT_ALLOWED", carries "field, reason", http 405, grpc Unimplemented, exit 2,
        "The path does not allow this HTTP method.", "Use one of the methods in the header Allow.";
    Conflict = "CONFLICT", carries "subject", http 409, grpc FailedPrecondition, exit 1,
        "The request contradicts the current state.", "Read the current state before you retry.";
    LeaseLost = "LEASE_LOST", carries "state, reason", http 410, grpc FailedPrecondition, exit 3,
        "The lease has ended.", "Stop writing. If it was released or expired, acquire again; if it was revoked, consult the operator first.";
    NotCurrent = "NOT_CURRENT", carries "reason", http 412, grpc FailedPrecondition, exit 3,
        "The caller does not hold this lease.", "Stop writing. Use the newest token of the lease, or acquire again.";
    StaleToken = "STALE_TOKEN", carries "presented, mark", http 412, grpc FailedPrecondition, exit 3,
        "A newer token has been used.", "Stop writing. The lease of this token has ended.";
    TokenInvalid = "TOKEN_INVALID", carries "reason", http 400, grpc InvalidArgument, exit 2,
        "The token is malformed, or belongs to another resource or slot.", "Pass the token text from the grant unchanged.";
    TokenImplausible = "TOKEN_IMPLAUSIBLE", carries "presented", http 400, grpc InvalidArgument, exit 2,
        "The token number is further ahead than clock differences explain.", "Compare the clocks, and find the origin of the token.";
    TokenExhausted = "TOKEN_EXHAUSTED", carries "", http 507, grpc OutOfRange, exit 7,
        "No token numbers are left.", "Restore into a new cluster.";
    WrongCluster = "WRONG_CLUSTER", carries "", http 421, grpc FailedPrecondition, exit 2,
        "The token belongs to another cluster.", "Send the request to the cluster that issued the token.";
    Busy = "BUSY", carries "holder, held_ms, remaining_ms, queue_position", http 423, grpc Aborted, exit 4,
        "Another holder has the lease.", "Wait for it with a wait time, or retry later.";
    Deadlock = "DEADLOCK", carries "cycle", http 409, grpc Aborted, exit 4,
        "The wait would complete a deadlock.", "Release what you hold, then retry.";
    AccessChange = "ACCESS_CHANGE", carries "reason", http 409, grpc FailedPrecondition, exit 4,
        "The caller holds the resource with another access.", "Release the lease, then acquire it with the new access.";
    ResourceExhausted = "RESOURCE_EXHAUSTED", carries "limit, max, got", http 429, grpc ResourceExhausted, exit 7,
        "A limit is exceeded.", "Request less, or release something.";
    Timeout = "TIMEOUT", carries "", http 408, grpc DeadlineExceeded, exit 4,
        "The lease was not granted within the wait time.", "Wait longer, or retry later.";
    Cancelled = "CANCELLED", carries "", http 409, grpc Cancelled, exit 4,
        "The wait was canceled.", "Acquire again if you still need the lease.";
    Indeterminate = "INDETERMINATE", carries "request_id", http 504, grpc Unknown, exit 5,
        "The outcome of the request is unknown.", "Retry the same request under the same request id.";
    NotLeader = "NOT_LEADER", carries "leader", http 503, grpc Unavailable, exit 5,
        "This server is not the leader.", "Send the request to the leader.";
    Unavailable = "UNAVAILABLE", carries "retry_after_ms", http 503, grpc Unavailable, exit 5,
        "No server decided; the request had no effect.", "Retry the same request later.";
    UnsupportedVersion = "UNSUPPORTED_VERSION", carries "have, want", http 400, grpc Unimplemented, exit 2,
        "The version is not supported.", "Update the older side.";
    FrameError = "FRAME_ERROR", carries "", http 400, grpc InvalidArgument, exit 1,
        "The bytes are not a valid message.", "Check that both sides use the same protocol.";
    StorageFull = "STORAGE_FULL", carries "retry_after_ms", http 507, grpc ResourceExhausted, exit 7,
        "The journal has no space for new grants.", "Free disk space on the server. Held leases keep working.";
    StorageFailed = "STORAGE_FAILED", carries "reason", http 500, grpc Internal, exit 5,
        "The server cannot read or write its storage.", "Check the server's log; retry after the repair.";
    Corrupt = "CORRUPT", carries "file, offset, reason", http 500, grpc DataLoss, exit 65,
        "Stored data is damaged.", "Keep the files, and restore from a backup.";
    Config = "CONFIG", carries "file, line, key, reason", http 400, grpc InvalidArgument, exit 78,
        "The configuration is invalid.", "Fix the key at that line.";
    RequestTooOld = "REQUEST_TOO_OLD", carries "lowest", http 409, grpc OutOfRange, exit 1,
        "The request id is older than the stored replies.", "Use a new request id.";
    RolledBack = "ROLLED_BACK", carries "retry_after_ms", http 503, grpc Unavailable, exit 5,
        "The state of the cluster was rolled back.", "Find the cause, then wait, or waive the quarantine.";
    Quarantined = "QUARANTINED", carries "retry_after_ms", http 503, grpc Unavailable, exit 5,
        "Nothing is granted for some time after a restore.", "Wait, or waive the quarantine with a comment.";
    HeldForOperator = "HELD_FOR_OPERATOR", carries "", http 423, grpc FailedPrecondition, exit 4,
        "A revocation reserved the resource for an operator.", "Free the resource with a comment.";
    ApprovalRequired = "APPROVAL_REQUIRED", carries "proposal", http 428, grpc FailedPrecondition, exit 8,
        "The action needs the approval of a second identity; it was proposed and not executed.",
        "Ask an approver to approve the proposal within 15 minutes.";
    NotAdopted = "NOT_ADOPTED", carries "incarnation", http 412, grpc FailedPrecondition, exit 3,
        "A strict target follows another incarnation.", "Adopt the incarnation at the target if the restore was intended.";
}

impl Code {
    /// The stable name, for example `BUSY`.
    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// Returns the code with this stable name.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.word() == word)
    }

    /// The HTTP status.
    pub const fn http(self) -> u16 {
        self.row().http
    }

    /// The gRPC status.
    pub const fn grpc(self) -> Grpc {
        self.row().grpc
    }

    /// Exit code of the command line.
    pub const fn exit(self) -> u8 {
        self.row().exit
    }

    /// Whether the same request is refused every time, until the request, the caller's credentials or a setting changes: a
    /// client never retries it by itself. An ended lease stays ended.
    pub const fn is_permanent(self) -> bool {
        match self {
            Self::InvalidArgument
            | Self::MethodNotAllowed
            | Self::Unauthenticated
            | Self::PermissionDenied
            | Self::Conflict
            | Self::AccessChange
            | Self::LeaseLost
            | Self::NotCurrent
            | Self::StaleToken
            | Self::TokenInvalid
            | Self::TokenImplausible
            | Self::TokenExhausted
            | Self::WrongCluster
            | Self::UnsupportedVersion
            | Self::FrameError
            | Self::Corrupt
            | Self::Config
            | Self::RequestTooOld
            | Self::ApprovalRequired
            | Self::NotAdopted => true,
            Self::NotFound
            | Self::Busy
            | Self::Deadlock
            | Self::ResourceExhausted
            | Self::Timeout
            | Self::Cancelled
            | Self::Indeterminate
            | Self::NotLeader
            | Self::Unavailable
            | Self::StorageFull
            | Self::StorageFailed
            | Self::RolledBack
            | Self::Quarantined
            | Self::HeldForOperator => false,
        }
    }

    /// Names of the problem fields that this code sets, as in JSON.
    pub fn carries(self) -> impl Iterator<Item = &'static str> {
        self.row().carries.split(", ").filter(|field| !field.is_empty())
    }

    /// Meaning, in one sentence.
    pub const fn meaning(self) -> &'static str {
        self.row().means
    }

    /// What to do next.
    pub const fn next_step(self) -> &'static str {
        self.row().next_step
    }
}

/// Exit codes of the command line that belong to no error code.
pub const OTHER_EXITS: [(u8, &str); 7] = [
    (0, "success"),
    (1, "other error"),
    (2, "invalid usage"),
    (8, "coverage hole, failed probe or failed demo"),
    (126, "`run`, `elect`: the command cannot be executed"),
    (127, "`run`, `elect`: the command was not found"),
    (128, "`run`: 128 + n if signal n ended the command; otherwise the command's own exit code"),
];

/// The page `docs/reference/errors.md`.
pub fn reference_page() -> String {
    let mut page = String::from(HEAD);
    for code in Code::ALL {
        let row = code.row();
        let carries = code.carries().map(|field| format!("`{field}`")).collect::<Vec<_>>().join(", ");
        let grpc = grpc_word(row.grpc);
        writeln!(
            page,
            "| `{}` | {carries} | {} | {grpc} | {} | {} | {} |",
            row.word, row.http, row.exit, row.means, row.next_step
        )
        .expect("writing to a string does not fail");
    }
    page.push_str(MIDDLE);
    for (exit, means) in OTHER_EXITS {
        writeln!(page, "| {exit} | {means} |").expect("writing to a string does not fail");
    }
    page
}

const HEAD: &str = "\
# Errors

Every refusal and failure has one stable code, identical over gRPC, HTTP and on the command line. The message contains the
values and the next step. This page is generated from `crates/wire/src/codes.rs`; a test keeps the two in sync.

- **HTTP**: a body of type `application/problem+json` with `code`, `detail`, `next_step` and the fields of the code.
- **gRPC**: the metadata `leasehold-code`, and a `leasehold.v1.Problem` in `grpc-status-details-bin`.
- **Command line**: the message on standard error, and the exit code.

| Code | Fields | HTTP | gRPC | Exit | Meaning | Next step |
|---|---|---|---|---|---|---|
";

const MIDDLE: &str = "
## States and reasons

| Code | State | Reason |
|---|---|---|
| `LEASE_LOST` | `released` | `released` |
| `LEASE_LOST` | `expired` | `ttl`, `session`, `stalled`, `max_hold`, `handed_off`, `restored` |
| `LEASE_LOST` | `revoked` | `operator`, `deadlock`, `priority`, `policy` |
| `NOT_CURRENT` | | `unknown`, `not_holder`, `superseded`; the lease has not necessarily ended |
| `TOKEN_INVALID` | | `absent`, `shape`, `checksum`, `zero`, `too_large`, `resource`, `shared`, `slot`; a seal: `signature`, `unknown_key`, `ended_key` |

Over gRPC, the state of a released lease is `LEASE_STATE_EXPIRED`: like after an expiry, the holder may acquire again.

## Retries

A renewal, a check or a query may be retried at any time. A change is safe to retry only under its request id
(`idempotency-key: <session>:<sequence>`); without one, the retry may execute twice.

## Other exit codes

| Exit | Meaning |
|---|---|
";

const fn grpc_word(code: Grpc) -> &'static str {
    match code {
        Grpc::Ok => "OK",
        Grpc::Cancelled => "CANCELLED",
        Grpc::Unknown => "UNKNOWN",
        Grpc::InvalidArgument => "INVALID_ARGUMENT",
        Grpc::DeadlineExceeded => "DEADLINE_EXCEEDED",
        Grpc::NotFound => "NOT_FOUND",
        Grpc::AlreadyExists => "ALREADY_EXISTS",
        Grpc::PermissionDenied => "PERMISSION_DENIED",
        Grpc::ResourceExhausted => "RESOURCE_EXHAUSTED",
        Grpc::FailedPrecondition => "FAILED_PRECONDITION",
        Grpc::Aborted => "ABORTED",
        Grpc::OutOfRange => "OUT_OF_RANGE",
        Grpc::Unimplemented => "UNIMPLEMENTED",
        Grpc::Internal => "INTERNAL",
        Grpc::Unavailable => "UNAVAILABLE",
        Grpc::DataLoss => "DATA_LOSS",
        Grpc::Unauthenticated => "UNAUTHENTICATED",
    }
}
