//! The one table of all codes: what each becomes over HTTP, over gRPC and at a terminal, and what to do about it.

use std::fmt::Write;

use tonic::Code as Grpc;

macro_rules! codes {
    ($($name:ident = $word:literal, carries $carries:literal, http $http:literal, grpc $grpc:ident, exit $exit:literal,
        $means:literal, $next:literal;)+) => {
        /// A stable code.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[non_exhaustive]
        pub enum Code {
            $(#[doc = $means] $name,)+
        }

        impl Code {
            /// Every code, in the order of the page.
            pub const ALL: &'static [Self] = &[$(Self::$name,)+];

            const fn row(self) -> Row {
                match self {
                    $(Self::$name => Row {
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

struct Row {
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
        "A field holds what it may not.", "Change the field and ask again.";
    Unauthenticated = "UNAUTHENTICATED", carries "reason", http 401, grpc Unauthenticated, exit 6,
        "Nobody knows who asks.", "Show a valid credential.";
    PermissionDenied = "PERMISSION_DENIED", carries "reason", http 403, grpc PermissionDenied, exit 6,
        "The caller may not do this.", "Ask for the right, or ask as somebody else.";
    NotFound = "NOT_FOUND", carries "about", http 404, grpc NotFound, exit 1,
        "There is no such thing.", "List what is there and try again.";
    Conflict = "CONFLICT", carries "about", http 409, grpc FailedPrecondition, exit 1,
        "It contradicts what is there.", "Read what is there before you retry.";
    LeaseLost = "LEASE_LOST", carries "state, reason", http 410, grpc FailedPrecondition, exit 3,
        "The lease is over.", "Stop. If it expired, acquire again; if it was revoked, ask first.";
    NotCurrent = "NOT_CURRENT", carries "reason", http 412, grpc FailedPrecondition, exit 3,
        "The lease is not the caller's to use.", "Stop. Use the newest token you were told, or acquire again.";
    StaleToken = "STALE_TOKEN", carries "presented, mark", http 412, grpc FailedPrecondition, exit 3,
        "A newer token was here.", "Stop. This authority is over.";
    TokenInvalid = "TOKEN_INVALID", carries "reason", http 400, grpc InvalidArgument, exit 2,
        "Not a token, or not for this.", "Pass the text of the grant on, unchanged and whole.";
    TokenImplausible = "TOKEN_IMPLAUSIBLE", carries "presented", http 400, grpc InvalidArgument, exit 2,
        "A token's number lies further ahead than clocks explain.", "Compare the clocks, and find where the token comes from.";
    TokenExhausted = "TOKEN_EXHAUSTED", carries "", http 507, grpc OutOfRange, exit 7,
        "No token number is left.", "Restore into a new cluster.";
    WrongCluster = "WRONG_CLUSTER", carries "", http 421, grpc FailedPrecondition, exit 2,
        "The token is another cluster's.", "Ask the cluster that issued it.";
    Busy = "BUSY", carries "queue_position", http 423, grpc Aborted, exit 4,
        "Somebody else holds it.", "Wait, or give up.";
    Deadlock = "DEADLOCK", carries "cycle", http 409, grpc Aborted, exit 4,
        "Waiting would never end.", "Release what you hold, then retry.";
    ResourceExhausted = "RESOURCE_EXHAUSTED", carries "limit, max, got", http 429, grpc ResourceExhausted, exit 7,
        "A bound is reached.", "Ask for less, or release some.";
    Timeout = "TIMEOUT", carries "", http 408, grpc DeadlineExceeded, exit 4,
        "It was not granted within the wait.", "Wait longer, or give up.";
    Cancelled = "CANCELLED", carries "", http 409, grpc Cancelled, exit 4,
        "The caller took its wait back.", "Nothing; ask again if you still want it.";
    Indeterminate = "INDETERMINATE", carries "request_id", http 504, grpc Unknown, exit 5,
        "Nobody knows whether it happened.", "Send the same request again under the same request id.";
    NotLeader = "NOT_LEADER", carries "leader", http 503, grpc Unavailable, exit 5,
        "Another server decides.", "Ask the leader.";
    Unavailable = "UNAVAILABLE", carries "retry_after_ms", http 503, grpc Unavailable, exit 5,
        "Nobody decided; nothing happened.", "Retry the same request later.";
    UnsupportedVersion = "UNSUPPORTED_VERSION", carries "have, want", http 400, grpc Unimplemented, exit 2,
        "A version that is not read here.", "Update the older side.";
    FrameError = "FRAME_ERROR", carries "", http 400, grpc InvalidArgument, exit 1,
        "Bytes that are no message.", "Check that both sides speak the same protocol.";
    StorageFull = "STORAGE_FULL", carries "retry_after_ms", http 507, grpc ResourceExhausted, exit 7,
        "The journal has no room for new grants.", "Free space on the server; held leases go on.";
    StorageFailed = "STORAGE_FAILED", carries "reason", http 500, grpc Internal, exit 5,
        "Something cannot be read or written.", "Look at the server's log; retry when it is repaired.";
    Corrupt = "CORRUPT", carries "file, offset, reason", http 500, grpc DataLoss, exit 65,
        "Stored bytes are damaged.", "Keep the files, and restore from a backup.";
    Config = "CONFIG", carries "file, line, key, reason", http 400, grpc InvalidArgument, exit 78,
        "The configuration says what it may not.", "Change the key at that line.";
    RequestTooOld = "REQUEST_TOO_OLD", carries "lowest", http 409, grpc OutOfRange, exit 1,
        "The request id was acknowledged and forgotten.", "Use a new request id.";
    RolledBack = "ROLLED_BACK", carries "retry_after_ms", http 503, grpc Unavailable, exit 5,
        "The cluster's state was rolled back behind its back.", "Find out why, then wait, or waive the quarantine.";
    Quarantined = "QUARANTINED", carries "retry_after_ms", http 503, grpc Unavailable, exit 5,
        "Nothing is granted for a while after a restore.", "Wait, or waive the quarantine in writing.";
    HeldForOperator = "HELD_FOR_OPERATOR", carries "", http 423, grpc FailedPrecondition, exit 4,
        "A revocation left it to an operator.", "Free it with a reason.";
    NotAdopted = "NOT_ADOPTED", carries "incarnation", http 412, grpc FailedPrecondition, exit 3,
        "A strict target follows another incarnation.", "Adopt the incarnation at the target, if the restore was meant.";
}

impl Code {
    /// The stable word, for example `BUSY`.
    pub const fn word(self) -> &'static str {
        self.row().word
    }

    /// The code that a stable word stands for.
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

    /// What the command line ends with.
    pub const fn exit(self) -> u8 {
        self.row().exit
    }

    /// The names of the fields that it carries, as a problem's JSON spells them.
    pub fn carries(self) -> impl Iterator<Item = &'static str> {
        self.row().carries.split(", ").filter(|field| !field.is_empty())
    }

    /// What it means, in one sentence.
    pub const fn means(self) -> &'static str {
        self.row().means
    }

    /// What to do about it.
    pub const fn next_step(self) -> &'static str {
        self.row().next_step
    }
}

/// What the command line ends with where no code is the reason.
pub const OTHER_EXITS: [(u8, &str); 7] = [
    (0, "done"),
    (1, "another error"),
    (2, "wrong usage"),
    (8, "a coverage hole, a failed probe or a failed demonstration"),
    (126, "`run`, `elect`: the command was found and cannot be run"),
    (127, "`run`, `elect`: the command was not found"),
    (128, "`run`: 128 + n, the command was ended by signal n; otherwise the command's own code"),
];

/// The page `docs/errors.md`.
pub fn page() -> String {
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
        .expect("a string takes all");
    }
    page.push_str(MIDDLE);
    for (exit, means) in OTHER_EXITS {
        writeln!(page, "| {exit} | {means} |").expect("a string takes all");
    }
    page
}

const HEAD: &str = "\
# Errors

Every refusal and failure has one stable code, the same over gRPC, HTTP and at a terminal. A message names the field,
what is allowed there, and the next step. This page is made from the table in `crates/wire/src/codes.rs`, and a test
compares the two.

- **HTTP**: a body of type `application/problem+json` with `code`, `detail`, `next_step` and what the code carries.
- **gRPC**: the metadata `leasehold-code`, and a `leasehold.v1.Problem` in `grpc-status-details-bin`.
- **Terminal**: the message on standard error, and the exit code.

| code | carries | HTTP | gRPC | exit | means | next step |
|---|---|---|---|---|---|---|
";

const MIDDLE: &str = "
`LEASE_LOST` carries the state and the reason: `expired` with `released`, `ttl`, `session`, `stalled`, `max_hold`,
`handed_off` or `restored`; `revoked` with `operator`, `deadlock`, `priority` or `policy`. `NOT_CURRENT` carries
`unknown`, `not_holder` or `superseded`: a refusal, not an end. `TOKEN_INVALID` carries what is wrong: `absent`, `shape`,
`checksum`, `zero`, `too_large`, `resource`, `shared` or `slot`.

A renewal, a confirmation or a read may be sent again at any time. A change is safe to send again only under its request
id (`idempotency-key: <session>:<sequence>`): without one there is no retry protection.

Exit codes without a code:

| exit | means |
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
