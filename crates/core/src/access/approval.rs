//! Dangerous actions, which of them need the approval of a second identity, and which other actions have the same effect (A14).

use super::Action;

/// An action that one identity can do much harm with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum DangerousAction {
    /// Free a resource that is blocked after a revocation.
    Free,
    /// Revoke leases.
    Revoke,
    /// End a quarantine early.
    WaiveQuarantine,
    /// Remove a charter.
    RemoveCharter,
    /// Change the longest ttl of the cluster.
    SetMaxTtl,
    /// Let another server lead.
    StepDown,
}

impl DangerousAction {
    /// All dangerous actions.
    pub const ALL: [Self; 6] =
        [Self::Free, Self::Revoke, Self::WaiveQuarantine, Self::RemoveCharter, Self::SetMaxTtl, Self::StepDown];

    /// The word in access files: that of its action.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Revoke => "revoke",
            Self::WaiveQuarantine => "waive_quarantine",
            Self::RemoveCharter => "remove_charter",
            Self::SetMaxTtl => "set_max_ttl",
            Self::StepDown => "step_down",
        }
    }

    /// The dangerous action of this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }
}

/// When an action has the effect of a dangerous one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacementCase {
    /// Always.
    Always,
    /// Unless the caller was granted the lease and proves it, as its holder does (A6).
    LeaseOfAnother,
}

/// A dangerous action whose effect another action can have, so that both need the same approval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Replacement {
    /// The dangerous action.
    pub replaces: DangerousAction,
    /// When the action replaces it.
    pub case: ReplacementCase,
    /// How the action replaces it; empty if it is the dangerous action itself.
    pub reason: &'static str,
}

const fn same(replaces: DangerousAction) -> Replacement {
    Replacement { replaces, case: ReplacementCase::Always, reason: "" }
}

const fn like(replaces: DangerousAction, reason: &'static str) -> Replacement {
    Replacement { replaces, case: ReplacementCase::Always, reason }
}

const STATE_REPLACED: &str = "a restore or a rollback replaces the whole state, also leases, blocks and charters; it happens on a disk, so \
                              the quarantine after it is what a second identity can hold";

impl Action {
    /// The dangerous actions whose effect this action can have. It needs an approval where one of them does. Every action is listed,
    /// so that a new one must say what it can replace.
    #[deny(clippy::wildcard_enum_match_arm, reason = "a new action must say which dangerous actions it can replace")]
    pub const fn replacements(self) -> &'static [Replacement] {
        use DangerousAction as D;
        match self {
            Self::Free => const { &[same(D::Free)] },
            Self::Revoke => const { &[same(D::Revoke)] },
            Self::SetMaxTtl => const { &[same(D::SetMaxTtl)] },
            Self::StepDown => const { &[same(D::StepDown)] },
            Self::WaiveQuarantine => {
                const {
                    &[
                        same(D::WaiveQuarantine),
                        like(D::Free, STATE_REPLACED),
                        like(D::Revoke, STATE_REPLACED),
                        like(D::RemoveCharter, STATE_REPLACED),
                        like(D::SetMaxTtl, STATE_REPLACED),
                        like(D::StepDown, STATE_REPLACED),
                    ]
                }
            }
            Self::RemoveCharter => {
                const {
                    &[
                        same(D::RemoveCharter),
                        like(
                            D::Revoke,
                            "the charter of a shorter prefix applies then, and may let waiters preempt holders",
                        ),
                        like(
                            D::Free,
                            "the charter of a shorter prefix applies then, and may not block after a revocation",
                        ),
                    ]
                }
            }
            Self::SetCharter => {
                const {
                    &[
                        like(D::RemoveCharter, "an empty charter has the effect of none"),
                        like(D::Revoke, "its preemption and its rule for deadlocks end leases that are held"),
                        like(D::Free, "a charter of a longer prefix may not block the resource after a revocation"),
                        like(D::SetMaxTtl, "its longest ttl is that of every name that it covers"),
                    ]
                }
            }
            Self::Handoff => {
                const {
                    &[Replacement {
                        replaces: D::Revoke,
                        case: ReplacementCase::LeaseOfAnother,
                        reason: "it ends the lease of another identity after its drain period",
                    }]
                }
            }
            // They act only on what the caller was granted itself, or end only its own waits.
            Self::ResumeSession
            | Self::RenewSession
            | Self::Reconcile
            | Self::CloseSession
            | Self::ListSession
            | Self::Cancel
            | Self::Withdraw
            | Self::Renew
            | Self::Release
            | Self::Rotate
            | Self::Progress
            | Self::FinishDrain
            | Self::ConfirmHold
            | Self::ResizeHold
            | Self::Veto
            | Self::Pin
            | Self::Put
            | Self::ExtendMessage
            | Self::AckMessage
            | Self::NackMessage
            | Self::CacheRenewRead
            | Self::CacheInvalidated
            | Self::CacheCommit
            | Self::CacheAbort
            | Self::CacheFilled => &[],
            // They end a lease of another only where the charter says so: by preemption, or to resolve a deadlock.
            Self::OpenSession
            | Self::OpenKeySession
            | Self::Acquire
            | Self::AcquireAll
            | Self::Enqueue
            | Self::Receive
            | Self::CacheRead
            | Self::CacheIntend
            | Self::CacheGetOrFill => &[],
            // A smaller capacity ends no lease (C3), and a blocked resource stays blocked.
            Self::SetCapacity => &[],
            // A floor, a dead letter and a row of the coverage are no lease, block or charter.
            Self::Collect | Self::RedriveMessage | Self::DropMessage | Self::ForgetTarget => &[],
            // They raise the counter, start a quarantine or extend one. They end no lease and shorten no quarantine.
            Self::ReportFences | Self::ObserveToken => &[],
            // What is approved needed the approval itself, and withdrawing a proposal executes nothing.
            Self::Approve | Self::CancelProposal => &[],
            // They change nothing.
            Self::Check
            | Self::Show
            | Self::List
            | Self::HeldBy
            | Self::Waiters
            | Self::Deadlocks
            | Self::EndedLeases
            | Self::State
            | Self::Queue
            | Self::Usage
            | Self::Status
            | Self::Cluster
            | Self::Keys
            | Self::Watch
            | Self::Charters
            | Self::Coverage
            | Self::Proposals
            | Self::Audit
            | Self::ExportAudit
            | Self::VerifyAudit
            | Self::Backup
            | Self::Metrics => &[],
        }
    }
}

/// Which actions need the approval of a second identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalRules {
    /// By dangerous action.
    required: [bool; DangerousAction::ALL.len()],
    /// A revocation or handoff of at most so many leases needs no approval.
    pub revoke_up_to: u64,
    /// Whether the identity may execute such an action alone, with a reason that is recorded.
    pub may_act_alone: bool,
}

impl ApprovalRules {
    /// No action needs an approval.
    pub const NONE: Self =
        Self { required: [false; DangerousAction::ALL.len()], revoke_up_to: 0, may_act_alone: false };

    /// Requires an approval for an action.
    pub const fn require(&mut self, action: DangerousAction) {
        self.required[action as usize] = true;
    }

    /// Whether a dangerous action is listed.
    pub const fn is_required(&self, action: DangerousAction) -> bool {
        self.required[action as usize]
    }

    /// Why an action needs an approval: it is listed, or can have the effect of what is listed.
    pub fn replaced_by(&self, action: Action) -> impl Iterator<Item = &'static Replacement> {
        action.replacements().iter().filter(|replacement| self.is_required(replacement.replaces))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_dangerous_action_is_the_action_of_its_word_and_needs_its_own_approval() {
        for dangerous in DangerousAction::ALL {
            let action = Action::ALL.iter().find(|action| action.word() == dangerous.word()).expect("an action");
            assert!(action.replacements().contains(&same(dangerous)), "{action:?}");
        }
    }

    #[test]
    fn an_action_replaces_each_dangerous_action_once_and_says_how() {
        for action in Action::ALL {
            let replaced: Vec<_> = action.replacements().iter().map(|one| one.replaces).collect();
            for (at, one) in action.replacements().iter().enumerate() {
                assert!(!replaced[..at].contains(&one.replaces), "{action:?} {one:?}");
                assert_eq!(one.reason.is_empty(), one.replaces.word() == action.word(), "{action:?} {one:?}");
            }
        }
    }
}
