//! Subjects of refusals, and the limits that can be exceeded.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident => $word:literal,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum $name {
            $($(#[$item])* $variant,)*
        }

        impl $name {
            /// All values, in the order of their stored codes.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];

            /// The stable word.
            pub const fn word(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

named! {
    /// The subject of a `NOT_FOUND` or `CONFLICT`.
    RefusalSubject {
        /// A resource.
        Resource => "resource",
        /// A lease.
        Lease => "lease",
        /// A session.
        Session => "session",
        /// A wait.
        Wait => "wait",
        /// A request id that was used with another body.
        Request => "request",
        /// A charter.
        Charter => "charter",
        /// A message of a queue.
        Message => "message",
        /// A key of the state stored under a resource.
        Key => "key",
        /// The write intent of a cached key.
        Intent => "intent",
        /// The capacity of a resource.
        Capacity => "capacity",
        /// A pending handoff.
        Handoff => "handoff",
        /// A collector's floor.
        Floor => "floor",
        /// A reservation.
        Hold => "hold",
        /// A quarantine.
        Quarantine => "quarantine",
        /// A target that reported.
        Target => "target",
        /// A standby server that could lead.
        Standby => "standby",
    }
}

named! {
    /// A limit that a request exceeds.
    Limit {
        /// Units of a resource.
        Units => "units",
        /// Readers of a resource.
        Readers => "readers",
        /// Resources of one atomic acquire.
        Resources => "resources",
        /// Re-entrant depth.
        Depth => "depth",
        /// Leases of a session.
        SessionLeases => "session_leases",
        /// Actors of a session.
        SessionActors => "session_actors",
        /// Waits of a session.
        SessionWaits => "session_waits",
        /// Unacknowledged requests of a session.
        SessionRequests => "session_requests",
        /// Leases of the cluster.
        Leases => "leases",
        /// Sessions of the cluster.
        Sessions => "sessions",
        /// Waiters of a resource.
        Waiters => "waiters",
        /// Charters of the cluster.
        Charters => "charters",
        /// Bytes of metadata.
        Metadata => "metadata",
        /// Bytes of a value.
        Value => "value",
        /// State keys of a resource.
        Keys => "keys",
        /// Messages of a queue.
        Messages => "messages",
        /// Bytes of a message.
        Message => "message",
        /// Readers of a cached key.
        CacheReaders => "cache_readers",
        /// Cached keys.
        CacheKeys => "cache_keys",
        /// Pins of a resource.
        Pins => "pins",
        /// Entries of a batch of reports.
        Reports => "reports",
        /// Targets that reported.
        Targets => "targets",
    }
}
