//! Faults planted outside of the core, in journal, driver, holder and fence, that the checkers must catch.

macro_rules! planted {
    ($($(#[doc = $doc:literal])* $name:ident breaks $promise:literal,)*) => {
        /// One planted fault.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Planted {
            $($(#[doc = $doc])* $name,)*
        }

        impl Planted {
            /// Every one.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The promise that it breaks.
            pub const fn promise(self) -> &'static str {
                match self {
                    $(Self::$name => $promise,)*
                }
            }

            /// What is left out or done wrong.
            pub fn what(self) -> &'static str {
                match self {
                    $(Self::$name => concat!($($doc),*).trim(),)*
                }
            }

            /// The one of this name.
            pub fn named(name: &str) -> Result<Self, String> {
                let known = Self::ALL.iter().copied().find(|planted| format!("{planted:?}") == name);
                known.ok_or_else(|| {
                    let names: Vec<_> = Self::ALL.iter().map(|planted| format!("{planted:?}")).collect();
                    format!("no such fault; there are {}", names.join(", "))
                })
            }
        }
    };
}

planted! {
    /// The target does not look at tokens.
    FenceOff breaks "F1",
    /// The target checks first and writes later.
    CheckThenAct breaks "F1",
    /// The mark is not kept with the write: a crash forgets it.
    MarkNotDurable breaks "F2",
    /// The mark is forgotten when a holder has been silent for a while.
    MarkExpires breaks "F7",
    /// One way of writing goes around the check.
    OnePathUnchecked breaks "F3",
    /// A write that comes twice is applied twice, at a target that counts them.
    SequenceIgnored breaks "F1",
    /// A strict target follows any life of the cluster.
    AnyIncarnation breaks "T5",
    /// A fence asks the grantor before it rules, and waits while there is none.
    AsksTheGrantor breaks "F9",
    /// Replies leave before their records are durable.
    ToldBeforeDurable breaks "L3",
    /// What needs no record is answered without asking whether this grantor still reigns.
    NotConfirmed breaks "E1",
    /// The journal takes appends of a deposed grantor.
    DeposedAppends breaks "L7",
    /// A sync that failed is taken for done.
    SyncFailureIgnored breaks "V3",
    /// The journal keeps a torn tail.
    TornTailKept breaks "V2",
    /// What is damaged in the middle of the journal is cut like a torn tail.
    RotCut breaks "V2",
    /// What waits at the door of a new grantor is dropped beyond a few.
    StormDropped breaks "N1",
    /// A server that was stopped stays down.
    StaysDown breaks "X1",
    /// A holder counts its lease from the answer, not from its asking.
    CountsFromAnswer breaks "L2",
    /// A holder takes every clock for right.
    TrustsClocks breaks "L2",
    /// A retry is sent as a new request.
    RetryIsNew breaks "L11",
    /// A client takes silence for a refusal.
    SilenceIsNo breaks "X3",
}
