//! The views of `leasehold top`, and the words after `:` that switch between them.

/// A view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopView {
    Leases,
    Waits,
    Deadlocks,
    Coverage,
    Handovers,
    Cluster,
    Audit,
}

impl TopView {
    /// Every view, in the order of its digit key.
    pub const ALL: [Self; 7] =
        [Self::Leases, Self::Waits, Self::Deadlocks, Self::Coverage, Self::Handovers, Self::Cluster, Self::Audit];

    /// The word of the command.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Leases => "leases",
            Self::Waits => "waits",
            Self::Deadlocks => "deadlocks",
            Self::Coverage => "coverage",
            Self::Handovers => "handovers",
            Self::Cluster => "cluster",
            Self::Audit => "audit",
        }
    }

    /// What the view shows, for the help.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Leases => "held leases with the time until each ends",
            Self::Waits => "which holders wait for which, as a tree",
            Self::Deadlocks => "recent deadlocks with their victims",
            Self::Coverage => "targets of resources, and holes in their fences",
            Self::Handovers => "changes of holder, slowest first",
            Self::Cluster => "servers, their lag, and members of etcd",
            Self::Audit => "the last entries of the audit log",
        }
    }

    /// What the filter of the view selects; none if it has no filter.
    pub const fn filter_hint(self) -> Option<&'static str> {
        match self {
            Self::Leases => Some("PREFIX, @HOLDER or PREFIX @HOLDER"),
            Self::Coverage => Some("PREFIX of resources"),
            Self::Audit => Some("RESOURCE"),
            Self::Waits | Self::Deadlocks | Self::Handovers | Self::Cluster => None,
        }
    }

    /// The view whose word starts with this text, if there is only one.
    pub fn from_command(text: &str) -> Option<Self> {
        let text = text.trim();
        let mut found = Self::ALL.into_iter().filter(|view| !text.is_empty() && view.word().starts_with(text));
        let first = found.next()?;
        (found.next().is_none() || first.word() == text).then_some(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_is_found_by_a_unique_start_of_its_word() {
        for view in TopView::ALL {
            assert_eq!(TopView::from_command(view.word()), Some(view));
        }
        assert_eq!(TopView::from_command(" l "), Some(TopView::Leases));
        assert_eq!(TopView::from_command("cl"), Some(TopView::Cluster));
        for ambiguous in ["", "c", "x", "leasess"] {
            assert_eq!(TopView::from_command(ambiguous), None, "{ambiguous}");
        }
    }
}
