//! Verbs after the colon of a path, in one list for routing, errors and OpenAPI.

macro_rules! verbs {
    ($(#[$about:meta])* $name:ident: $($verb:ident = $word:literal),+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $word] $verb,)+
        }

        impl $name {
            /// All verbs, as they are written in a path.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// Parses a verb.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$verb),)+
                    _ => None,
                }
            }
        }
    };
}

verbs! {
    /// Commands on a resource: `POST /v1/leases/{name}:verb`.
    LeaseVerb: Acquire = "acquire", Renew = "renew", Release = "release", Check = "check", Handoff = "handoff",
        Revoke = "revoke", Free = "free", Capacity = "capacity", Progress = "progress", Rotate = "rotate",
        Drained = "drained", Confirm = "confirm", Resize = "resize", Veto = "veto", Put = "put", Pin = "pin",
        Collect = "collect"
}

verbs! {
    /// Commands on a session: `POST /v1/sessions/{session}:verb`.
    SessionVerb: Renew = "renew", Reconcile = "reconcile", Cancel = "cancel", Close = "close"
}

verbs! {
    /// Commands on a queue: `POST /v1/queues/{name}:verb`.
    QueueVerb: Send = "send", Receive = "receive", Ack = "ack", Nack = "nack", Extend = "extend",
        Redrive = "redrive", Drop = "drop"
}

verbs! {
    /// Commands on a cached key: `POST /v1/cache/{key}:verb`.
    CacheVerb: Read = "read", Renew = "renew", Invalidated = "invalidated", Intend = "intend", Commit = "commit",
        Abort = "abort", GetOrFill = "get_or_fill", Filled = "filled"
}

verbs! {
    /// Commands on a proposal: `POST /v1/proposals/{proposal}:verb`.
    ProposalVerb: Approve = "approve", Cancel = "cancel"
}
