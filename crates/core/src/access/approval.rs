//! Dangerous actions, and which of them need the approval of a second identity (A14).

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

/// Which actions need the approval of a second identity.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ApprovalRules {
    /// By dangerous action.
    required: [bool; DangerousAction::ALL.len()],
    /// A revocation of at most so many leases needs no approval.
    pub revoke_up_to: u64,
}

impl ApprovalRules {
    /// No action needs an approval.
    pub const NONE: Self = Self { required: [false; DangerousAction::ALL.len()], revoke_up_to: 0 };

    /// Requires an approval for an action.
    pub const fn require(&mut self, action: DangerousAction) {
        self.required[action as usize] = true;
    }

    /// Whether an action needs an approval.
    pub const fn is_required(&self, action: DangerousAction) -> bool {
        self.required[action as usize]
    }
}
