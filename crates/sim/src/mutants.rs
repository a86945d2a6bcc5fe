//! Faults planted outside of the core, in journal, driver, holder and fence, that the checkers must catch.

macro_rules! planted {
    ($($(#[doc = $doc:literal])* $name:ident breaks $promise:literal,)*) => {
        /// One planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum PlantedFault {
            $($(#[doc = $doc])* $name,)*
        }

        impl PlantedFault {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The promise that it breaks.
            pub const fn promise(self) -> &'static str {
                match self {
                    $(Self::$name => $promise,)*
                }
            }

            /// What is left out or done wrong.
            pub fn description(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*).trim(),)*
                }
            }

            /// The one of this name.
            pub fn parse(name: &str) -> Result<Self, String> {
                let known = Self::ALL.iter().copied().find(|planted| format!("{planted:?}") == name);
                known.ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|planted| format!("{planted:?}")).collect();
                    format!("unknown fault; use one of {}", names.join(", "))
                })
            }
        }
    };
}

planted! {
    /// The target ignores tokens.
    FenceOff breaks "F1",
    /// The target checks first and writes later.
    CheckThenAct breaks "F1",
    /// The mark is not stored with the write: a crash loses it.
    MarkNotDurable breaks "F2",
    /// The mark is forgotten when a holder has been silent for a while.
    MarkExpires breaks "F7",
    /// One write path bypasses the check.
    OnePathUnchecked breaks "F3",
    /// A duplicate write is applied twice, at a target that counts writes.
    SequenceIgnored breaks "F1",
    /// A strict target accepts any incarnation.
    AnyIncarnation breaks "T5",
    /// A fence asks the grantor before it decides, and waits while there is none.
    FenceQueriesGrantor breaks "F9",
    /// Replies leave before their records are durable.
    ReplyBeforeDurable breaks "L3",
    /// Replies without records are sent without confirming leadership.
    LeadershipNotConfirmed breaks "E1",
    /// The journal accepts appends of a deposed grantor.
    DeposedAppends breaks "L7",
    /// A failed sync is treated as done.
    SyncFailureIgnored breaks "V3",
    /// The journal keeps a torn tail.
    TornTailKept breaks "V2",
    /// Damage in the middle of the journal is cut like a torn tail.
    CorruptionTruncated breaks "V2",
    /// A server compares only how far a restored journal reaches, not its content.
    ContentNotCompared breaks "V2",
    /// A new grantor drops all but a few waiting requests.
    StormDropped breaks "N1",
    /// A server that was stopped stays down.
    StaysDown breaks "X1",
    /// A holder counts its lease from the reply, not from the request.
    CountsFromReply breaks "L2",
    /// A holder ignores clock drift.
    TrustsClocks breaks "L2",
    /// A retry is sent as a new request.
    RetryIsNew breaks "L11",
    /// A client treats silence as a refusal.
    SilenceIsRefusal breaks "X3",
}
