//! Mutants: faults that the tests must detect. Each breaks one promise; one is selected at run time. A normal build has none.

macro_rules! mutants {
    ($($name:ident breaks $promise:literal,)*) => {
        /// A fault that breaks one promise.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub enum Mutant {
            $(
                #[doc = concat!("Breaks ", $promise, ".")]
                $name,
            )*
        }

        impl Mutant {
            /// All mutants.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The promise that it breaks.
            pub const fn promise(self) -> &'static str {
                match self {
                    $(Self::$name => $promise,)*
                }
            }
        }
    };
}

mutants! {
    CounterResets breaks "T1",
    CounterIgnored breaks "T2",
    ReentryNewToken breaks "T3",
    NumberNotLifted breaks "T4",
    RestoreKeepsCounter breaks "T5",
    BackupRenewable breaks "T5",
    NoQuarantine breaks "T5",
    ClusterNotCompared breaks "T6",
    ExhaustionIgnored breaks "T7",
    RollbackIgnored breaks "T9",
    RollbackNotQuarantined breaks "T9",
    EvidenceShortensQuarantine breaks "T9",
    GapForgotten breaks "T9",
    IssuedNumberSuspected breaks "T9",
    FullTableHidesRollback breaks "T9",
    KeyHidesRollback breaks "T9",
    CapacityOversold breaks "L1",
    AliveNotRecorded breaks "L2",
    ExtensionNotRecorded breaks "L2",
    LeaseEndsEarly breaks "L2",
    ShortDrainObeyed breaks "L2",
    GrantNotRecorded breaks "L3",
    RefusalNotRecorded breaks "L4",
    TokenNotCompared breaks "L5",
    HolderNotCompared breaks "L5",
    SessionIdAgain breaks "L5",
    RevokeForgotten breaks "L6",
    EndNotGuarded breaks "L7",
    DeadWaiterGranted breaks "L8",
    CreditUnbounded breaks "L9",
    EveryOpeningExtends breaks "L9",
    ZeroIsForever breaks "L10",
    MaxHoldIgnored breaks "L10",
    OldRequestIsNew breaks "L11",
    AnswerNotStored breaks "L11",
    KeyAlwaysNew breaks "L11",
    CreditNotRecorded breaks "L12",
    LateRenewalRefused breaks "L12",
    LowerTokenAdmitted breaks "F1",
    ResourceNotCompared breaks "F4",
    PlausibilityNotChecked breaks "F5",
    ZombieNotReported breaks "F6",
    LostMarkIsFresh breaks "F7",
    QueueOrderIgnored breaks "W1",
    WakeupLost breaks "W2",
    WaitNeverEnds breaks "W3",
    CancelIgnored breaks "W3",
    ReadersOvertake breaks "W4",
    QueueIsDeadlock breaks "D1",
    OneHolderBlocksAll breaks "D1",
    CyclesNotDetected breaks "D2",
    EveryMemberIsVictim breaks "D3",
    GraceIgnored breaks "P1",
    PriorityNotInherited breaks "P2",
    ResizeOversells breaks "C1",
    ConfirmForgetsUnits breaks "C2",
    ShrinkEndsLeases breaks "C3",
    ExpiredHoldConfirmed breaks "C4",
    ExpiryDropsMessage breaks "Q1",
    AttemptsNotCounted breaks "Q2",
    AckById breaks "Q3",
    MessageDeliveredTwice breaks "Q4",
    AttemptsUnlimited breaks "Q5",
    LowerCheckpointAccepted breaks "H1",
    GapOverlaps breaks "H2",
    ClaimAtOnce breaks "H2",
    DrainNeverEnds breaks "H3",
    SessionLeavesLeases breaks "S1",
    SecretNotCompared breaks "S2",
    ReadDuringIntent breaks "R1",
    WriteDoesNotWait breaks "R2",
    PulseIsProgress breaks "G1",
    PinBelowFloor breaks "B1",
    PinIgnored breaks "B1",
    RenewalChangesState breaks "V1",
    FullJournalGrants breaks "V4",
    FullJournalProposes breaks "V4",
    ChainNotChecked breaks "A1",
    RenewUnchecked breaks "A4",
    ReplayUnchecked breaks "A4",
    LeafUnchecked breaks "A4",
    PresentedBeforeCheck breaks "A4",
    KeyOpenedUnchecked breaks "A4",
    PrefixByBytes breaks "A5",
    IdByRequest breaks "A5",
    ForbiddenRevealed breaks "A5",
    NumberIsEnough breaks "A6",
    LeaseSecretNotRequired breaks "A6",
    AnyLeaseSecretProves breaks "A6",
    SessionSecretNotRequired breaks "A6",
    AnySessionSecretProves breaks "A6",
    AnyStreamProves breaks "A6",
    SessionIdIsEnough breaks "A6",
    ReplayToStranger breaks "A6",
    CycleRevealsNames breaks "A7",
    QueryUnfiltered breaks "A7",
    AnybodyLifts breaks "A9",
    OperatorNamesReporter breaks "A9",
    ReporterStopsForever breaks "A9",
    QuotaShared breaks "A12",
    RenewalsCounted breaks "A12",
    WaitsNotCounted breaks "A12",
    ChartersNotCounted breaks "A12",
    TargetsNotCounted breaks "A12",
    MessagesNotCounted breaks "A12",
    CacheGrantsNotCounted breaks "A12",
    StateNotCounted breaks "A12",
    EndsStillCounted breaks "A12",
    KeyHolderAccepted breaks "A12",
    ActorMissing breaks "A13",
    ActorCarriedOver breaks "A13",
    OneIsTwo breaks "A14",
    ApprovedAnother breaks "A14",
    ApprovedAgain breaks "A14",
    ProposalNeverExpires breaks "A14",
    CharterReplacesRevocation breaks "A14",
    HandoffReplacesRevocation breaks "A14",
    QuarantineWaivedAlone breaks "A14",
    ApprovedOtherSubject breaks "A14",
    AnyoneActsAlone breaks "A14",
    ActAloneNotRecorded breaks "A14",
    RequestsUnbounded breaks "X2",
}

/// Whether this mutant is active; never in a normal build.
#[cfg(not(feature = "mutants"))]
#[inline(always)]
pub(crate) const fn on(_: Mutant) -> bool {
    false
}

#[cfg(feature = "mutants")]
pub use selection::*;

#[cfg(feature = "mutants")]
mod selection {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::Mutant;

    const NONE: u32 = u32::MAX;

    static CHOSEN: AtomicU32 = AtomicU32::new(NONE);

    /// Marks a binary with mutants, so that a release check can find it.
    #[used]
    pub static MARKER: [u8; 33] = *b"leasehold-mutants-are-compiled-in";

    /// Activates a mutant, or none.
    pub fn choose(mutant: Option<Mutant>) {
        CHOSEN.store(mutant.map_or(NONE, |mutant| mutant as u32), Ordering::SeqCst);
    }

    /// Whether this mutant is active.
    pub fn on(mutant: Mutant) -> bool {
        CHOSEN.load(Ordering::Relaxed) == mutant as u32
    }
}
