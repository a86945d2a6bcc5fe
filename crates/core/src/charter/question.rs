//! The sixteen questions that every charter is asked, on the five axes along which leases fail.

use std::fmt;

/// What a question is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Axis {
    /// What a lease rests on.
    Validity,
    /// What it gives.
    Authority,
    /// Who stops a zombie.
    Enforcement,
    /// What the token can be relied on for.
    Token,
    /// How a hold goes on, changes hands and ends.
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

/// One question. Those without a field are answered by Leasehold itself, the same for every charter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Question {
    /// What the lease rests on.
    Rung,
    /// Who watches that.
    Observer,
    /// What a failure costs.
    Price,
    /// What the holder may touch.
    Authority,
    /// Which rules come with the purpose.
    Payload,
    /// What stays behind.
    Remains,
    /// Where writes go.
    Targets,
    /// Who looks at the token there.
    Checks,
    /// Where nobody does.
    Holes,
    /// Where numbers are kept.
    Counter,
    /// What a stale write gets.
    Stale,
    /// Whether every two tokens can be compared.
    Order,
    /// What a renewal proves.
    Renewal,
    /// Gap or overlap.
    Handoff,
    /// What becomes of unrecorded work.
    Uncommitted,
    /// Where a successor goes on.
    StartsFrom,
}

impl Question {
    /// All of them, in the order they are asked.
    pub const ALL: [Self; 16] = [
        Self::Rung,
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

    /// The stable word by which it is called.
    pub const fn id(self) -> &'static str {
        match self {
            Self::Rung => "rung",
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

    /// The question as it is put to people.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Rung => "Which rung carries this lease, and so what must fail before it is void?",
            Self::Observer => "Who watches that rung, and when may a holder see it differently?",
            Self::Price => "If a mere timer misled somebody here, what would be lost, and is the rung worth that much?",
            Self::Authority => "What may the holder touch, item by item?",
            Self::Payload => "What is the lease for, so that the rules of that purpose hold?",
            Self::Remains => "What stays behind when the lease is over, and whose token does it carry?",
            Self::Targets => "Where do the holder's writes go, leaving nothing out?",
            Self::Checks => "Does each target look at the token by itself, or take a writer's word?",
            Self::Holes => "Which targets let a zombie through, and what is each of those holes worth?",
            Self::Counter => "Where are token numbers kept, and why do they never fall when the grantor dies?",
            Self::Stale => "Is a stale write turned away, or only noted?",
            Self::Order => {
                "Are there two tokens of which nobody can tell the newer, after a restore or with two grantors?"
            }
            Self::Renewal => "Does a renewal show that the holder is there, or that its work moves?",
            Self::Handoff => "When it changes hands, may there be a moment with no holder, or one with two?",
            Self::Uncommitted => "What becomes of work that the predecessor began and did not record?",
            Self::StartsFrom => "Where does a successor go on, and under whose token was that written?",
        }
    }

    /// The axis it belongs to.
    pub const fn axis(self) -> Axis {
        match self {
            Self::Rung | Self::Observer | Self::Price => Axis::Validity,
            Self::Authority | Self::Payload | Self::Remains => Axis::Authority,
            Self::Targets | Self::Checks | Self::Holes => Axis::Enforcement,
            Self::Counter | Self::Stale | Self::Order => Axis::Token,
            Self::Renewal | Self::Handoff | Self::Uncommitted | Self::StartsFrom => Axis::Lifecycle,
        }
    }

    /// The field of a charter that answers it; none where Leasehold answers for every charter.
    pub const fn field(self) -> Option<&'static str> {
        Some(match self {
            Self::Rung => "rung",
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
    fn sixteen_questions_on_five_axes_each_with_its_own_name_and_words() {
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
