//! The sixteen questions that every charter must answer, grouped by the five axes along which leases fail.

use std::fmt;

/// The subject area of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// What the validity of a lease rests on.
    Validity,
    /// What a lease allows.
    Authority,
    /// What stops a zombie.
    Enforcement,
    /// What a token guarantees.
    Token,
    /// How a lease is renewed, handed off and ended.
    Lifecycle,
}

impl Axis {
    /// The stable word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Validity => "validity",
            Self::Authority => "authority",
            Self::Enforcement => "enforcement",
            Self::Token => "token",
            Self::Lifecycle => "lifecycle",
        }
    }
}

/// One question. Leasehold itself answers those without a field, in the same way for every charter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// What the validity of the lease rests on.
    Validity,
    /// Who observes that validity.
    Observer,
    /// What a failure costs.
    Price,
    /// What the holder may change.
    Authority,
    /// What the lease is for.
    Payload,
    /// What remains after the lease ends.
    Remains,
    /// Where the holder's writes go.
    Targets,
    /// How each target checks the token.
    Checks,
    /// Which targets do not check it.
    Holes,
    /// Where token numbers are stored.
    Counter,
    /// What happens to a stale write.
    Stale,
    /// Whether any two tokens can be compared.
    Order,
    /// What a renewal proves.
    Renewal,
    /// Gap or overlap.
    Handoff,
    /// What happens to uncommitted work of the predecessor.
    Uncommitted,
    /// Where a successor continues.
    StartsFrom,
}

impl Question {
    /// All questions, in the order of the report.
    pub const ALL: [Self; 16] = [
        Self::Validity,
        Self::Observer,
        Self::Price,
        Self::Authority,
        Self::Payload,
        Self::Remains,
        Self::Targets,
        Self::Checks,
        Self::Holes,
        Self::Counter,
        Self::Stale,
        Self::Order,
        Self::Renewal,
        Self::Handoff,
        Self::Uncommitted,
        Self::StartsFrom,
    ];

    /// The stable id.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Validity => "validity",
            Self::Observer => "observer",
            Self::Price => "price",
            Self::Authority => "authority",
            Self::Payload => "payload",
            Self::Remains => "remains",
            Self::Targets => "targets",
            Self::Checks => "checks",
            Self::Holes => "holes",
            Self::Counter => "counter",
            Self::Stale => "stale",
            Self::Order => "order",
            Self::Renewal => "renewal",
            Self::Handoff => "handoff",
            Self::Uncommitted => "uncommitted",
            Self::StartsFrom => "starts_from",
        }
    }

    /// The question in words.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Validity => "What does the validity of this lease rest on, and what must fail to make it invalid?",
            Self::Observer => "Who observes that validity, and when can a holder's view differ?",
            Self::Price => "What would two simultaneous holders cost, and is the chosen validity worth that cost?",
            Self::Authority => "What may the holder change? List each item.",
            Self::Payload => "What is the lease for?",
            Self::Remains => "What remains after the lease ends, and which token does it carry?",
            Self::Targets => "Where do the holder's writes go? List every target.",
            Self::Checks => "Does each target check the token itself, or does it rely on the writer?",
            Self::Holes => "Which targets accept writes from a zombie, and what does each of these holes cost?",
            Self::Counter => "Where are token numbers stored, and why do they never decrease when the grantor fails?",
            Self::Stale => "Is a stale write rejected, or only logged?",
            Self::Order => {
                "Can two tokens exist whose order is undefined, for example after a restore or with two grantors?"
            }
            Self::Renewal => "Does a renewal prove that the holder is alive, or that its work progresses?",
            Self::Handoff => "During a handoff, may there be a moment with no holder, or a moment with two?",
            Self::Uncommitted => "What happens to work that the predecessor started and did not commit?",
            Self::StartsFrom => "Where does a successor continue, and under which token was that state written?",
        }
    }

    /// The axis it belongs to.
    pub const fn axis(self) -> Axis {
        match self {
            Self::Validity | Self::Observer | Self::Price => Axis::Validity,
            Self::Authority | Self::Payload | Self::Remains => Axis::Authority,
            Self::Targets | Self::Checks | Self::Holes => Axis::Enforcement,
            Self::Counter | Self::Stale | Self::Order => Axis::Token,
            Self::Renewal | Self::Handoff | Self::Uncommitted | Self::StartsFrom => Axis::Lifecycle,
        }
    }

    /// The charter field that answers it; `None` where Leasehold answers for every charter.
    pub const fn field(self) -> Option<&'static str> {
        Some(match self {
            Self::Validity => "validity",
            Self::Observer => "observer",
            Self::Price => "price_of_failure",
            Self::Authority => "authority",
            Self::Payload => "payload",
            Self::Targets => "targets",
            Self::Checks | Self::Holes => "targets.mode",
            Self::Renewal => "renewal",
            Self::Handoff => "handoff",
            Self::Uncommitted => "uncommitted",
            Self::StartsFrom => "starts_from",
            Self::Remains | Self::Counter | Self::Stale | Self::Order => return None,
        })
    }
}

impl fmt::Display for Question {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn there_are_sixteen_distinct_questions_on_five_axes() {
        let ids: BTreeSet<_> = Question::ALL.iter().map(|q| q.id()).collect();
        let texts: BTreeSet<_> = Question::ALL.iter().map(|q| q.text()).collect();
        assert_eq!((ids.len(), texts.len()), (16, 16));
        let on = |axis| Question::ALL.iter().filter(|q| q.axis() == axis).count();
        let counts = [Axis::Validity, Axis::Authority, Axis::Enforcement, Axis::Token, Axis::Lifecycle].map(on);
        assert_eq!(counts, [3, 3, 3, 3, 4]);
    }

    #[test]
    fn leasehold_answers_four_questions_for_every_charter() {
        let own: Vec<_> = Question::ALL.iter().filter(|q| q.field().is_none()).map(|q| q.id()).collect();
        assert_eq!(own, ["remains", "counter", "stale", "order"]);
    }
}
