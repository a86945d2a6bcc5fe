//! What an action of an operator would do, as sentences: who loses what, who is next, and which targets refuse the old holder. The
//! dashboard and `leasehold top` show the same.

use leasehold_core::coverage::Hole;

use super::text::{count, duration, plural, query_value};

/// An action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OperatorAction {
    /// End the leases of a resource.
    Revoke,
    /// Ask the holder to stop, so that the next waiter follows.
    Handoff,
    /// Free a resource that is blocked after a revocation.
    Free,
    /// End a quarantine.
    Waive,
}

impl OperatorAction {
    /// All actions.
    pub const ALL: [Self; 4] = [Self::Revoke, Self::Handoff, Self::Free, Self::Waive];

    /// The word in addresses.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Revoke => "revoke",
            Self::Handoff => "handoff",
            Self::Free => "free",
            Self::Waive => "waive",
        }
    }

    /// The action of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|action| action.word() == word)
    }

    /// The title of its page and button.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Revoke => "Revoke",
            Self::Handoff => "Hand off",
            Self::Free => "Free",
            Self::Waive => "End the quarantine",
        }
    }

    /// Whether it acts on the leases that its preview shows.
    pub const fn is_of_leases(self) -> bool {
        matches!(self, Self::Revoke | Self::Handoff)
    }

    /// The log that records its reason. The record of a handoff has no comment.
    pub const fn reason_log(self) -> &'static str {
        match self {
            Self::Handoff => "log of the server",
            Self::Revoke | Self::Free | Self::Waive => "audit log",
        }
    }

    /// The address of its preview.
    pub fn path(self, resource: &str) -> String {
        match self {
            Self::Waive => "/ui/actions/waive".to_owned(),
            _ => format!("/ui/actions/{}?resource={}", self.word(), query_value(resource)),
        }
    }
}

/// What the sentences are made from.
#[derive(Clone, Debug)]
pub struct ActionFacts<'a> {
    /// The action.
    pub action: OperatorAction,
    /// The first leases of the resource.
    pub leases: Vec<AffectedLease<'a>>,
    /// Number of all leases.
    pub held: u64,
    /// Name of the first waiter.
    pub next: Option<&'a str>,
    /// Whether a revocation reserves the resource for an operator.
    pub blocks_after_revocation: bool,
    /// Whether a handoff overlaps.
    pub overlaps: bool,
    /// The drain period of the charter.
    pub drain_ms: Option<u64>,
    /// Whether the resource is blocked after a revocation.
    pub held_for_operator: bool,
    /// The remaining quarantine.
    pub quarantine_ms: Option<u64>,
    /// The targets; none if the reader may not see them.
    pub targets: Option<Vec<AffectedTarget>>,
}

/// A lease that an action concerns.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedLease<'a> {
    /// Name of the holder.
    pub holder: &'a str,
    /// Its token number.
    pub token: u64,
    /// Whether a session carries it, which is notified.
    pub has_session: bool,
    /// Remaining lifetime unless renewed.
    pub remaining_ms: u64,
}

/// A target of the resource.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AffectedTarget {
    /// Its name; empty if the resource has no known target.
    pub name: String,
    /// `forced` or `cooperative`, as declared.
    pub mode: String,
    /// Whether it does not refuse a stale token, or that is unknown.
    pub is_open: bool,
    /// What is missing, if this version knows it.
    pub hole: Option<Hole>,
}

/// A part of a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EffectText {
    /// Words.
    Plain(String),
    /// A name of a caller.
    Name(String),
    /// A token number.
    Token(u64),
}

impl EffectText {
    fn plain(text: impl Into<String>) -> Self {
        Self::Plain(text.into())
    }
}

/// A sentence.
pub type EffectSentence = Vec<EffectText>;

/// What the targets do afterwards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TargetOutcome {
    /// Whether every target refuses the old holder.
    pub is_fenced: bool,
    /// One sentence.
    pub summary: String,
    /// A line for each target; holes first.
    pub lines: Vec<EffectSentence>,
    /// Number of the lines that are holes.
    pub holes: usize,
}

/// Leases that are named.
const MAX_LEASES: usize = 20;

impl ActionFacts<'_> {
    /// What would happen.
    pub fn effects(&self) -> Vec<EffectSentence> {
        match self.action {
            OperatorAction::Revoke => self.revoke_effects(),
            OperatorAction::Handoff => self.handoff_effects(),
            OperatorAction::Free => {
                let effect = match self.held_for_operator {
                    true => "The block after the revocation ends.",
                    false => "The resource is not blocked, so nothing changes.",
                };
                vec![vec![EffectText::plain(effect)], self.next_holder()]
            }
            OperatorAction::Waive => {
                let effect = self.quarantine_ms.map_or_else(
                    || "There is no quarantine.".to_owned(),
                    |left| {
                        format!(
                            "Leases are granted at once instead of in {}. Tokens from before the rollback or restore may still be in \
                             use: make sure that no former holder can write.",
                            duration(left)
                        )
                    },
                );
                vec![vec![EffectText::plain(effect)]]
            }
        }
    }

    fn revoke_effects(&self) -> Vec<EffectSentence> {
        let mut effects = Vec::new();
        if self.leases.is_empty() {
            effects.push(vec![EffectText::plain("Nothing is held, so there is nothing to revoke.")]);
        }
        effects.extend(self.leases.iter().take(MAX_LEASES).map(|lease| {
            let learns = match lease.has_session {
                true => ". Its session is notified at once.".to_owned(),
                false => format!(". It learns of it at its next renewal, in at most {}.", duration(lease.remaining_ms)),
            };
            let (holder, loses) = (EffectText::Name(lease.holder.to_owned()), EffectText::plain(" loses token "));
            vec![holder, loses, EffectText::Token(lease.token), EffectText::Plain(learns)]
        }));
        if let Some(more) = self.held.checked_sub(MAX_LEASES as u64).filter(|more| *more > 0) {
            effects.push(vec![EffectText::Plain(format!("So do {} more.", count(more)))]);
        }
        effects.push(match self.blocks_after_revocation {
            true => vec![EffectText::plain(
                "The charter then blocks the resource until an operator frees it; no waiter is granted.",
            )],
            false => self.next_holder(),
        });
        effects
    }

    fn handoff_effects(&self) -> Vec<EffectSentence> {
        let drain = self.drain_ms.map_or_else(|| "the default drain period".to_owned(), duration);
        let mut effects = vec![match self.leases.first() {
            None => vec![EffectText::plain("Nothing is held, so there is nothing to hand off.")],
            Some(lease) => {
                let asked = format!(" is asked to stop within {drain}, and keeps its token until then.");
                vec![EffectText::Name(lease.holder.to_owned()), EffectText::Plain(asked)]
            }
        }];
        if self.overlaps {
            effects.push(vec![EffectText::plain("The charter overlaps: the successor is granted first.")]);
        }
        effects.push(self.next_holder());
        effects
    }

    fn next_holder(&self) -> EffectSentence {
        match self.next {
            Some(waiter) => {
                vec![EffectText::plain("Next in line is "), EffectText::Name(waiter.to_owned()), EffectText::plain(".")]
            }
            None => vec![EffectText::plain("No one waits, so it becomes free.")],
        }
    }

    /// Which targets refuse the old holder, and which do not.
    pub fn target_outcome(&self) -> Option<TargetOutcome> {
        let targets = self.targets.as_ref()?;
        let (open, fenced): (Vec<_>, Vec<_>) = targets.iter().partition(|target| target.is_open);
        let is_fenced = open.is_empty();
        let summary = match is_fenced {
            true => {
                let refuse = if fenced.len() == 1 { "refuses" } else { "refuse" };
                let targets = plural(fenced.len() as u64, "target");
                format!("{targets} {refuse} it once the successor has claimed there.")
            }
            false => "The old holder can still write where there is a hole:".to_owned(),
        };
        let name = |target: &AffectedTarget| match target.name.is_empty() {
            true => EffectText::plain("an unknown target"),
            false => EffectText::Name(target.name.clone()),
        };
        let hole = |target: &&AffectedTarget| {
            vec![name(target), EffectText::Plain(format!(": {}", target.hole.map_or("unknown", Hole::advice)))]
        };
        let refuses = |target: &&AffectedTarget| {
            vec![name(target), EffectText::Plain(format!(": refuses a stale token ({})", target.mode))]
        };
        let lines = open.iter().map(hole).chain(fenced.iter().map(refuses)).collect();
        Some(TargetOutcome { is_fenced, summary, lines, holes: open.len() })
    }
}
