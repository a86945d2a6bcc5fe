//! Roles: sets of actions that a grant allows under a prefix.

use std::fmt;

/// What a grant allows under its prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Role {
    /// Acquires leases and acts on its own ones.
    Holder,
    /// Reads everything and changes nothing.
    Observer,
    /// An observer that also revokes, frees, hands off and sets charters and capacities.
    Operator,
    /// Reports what the fences of a target checked.
    Reporter,
    /// Approves what another identity proposed.
    Approver,
    /// Administers the whole cluster. Its prefix is empty.
    Admin,
}

impl Role {
    /// All roles, in the order of the permission matrix.
    pub const ALL: [Self; 6] =
        [Self::Holder, Self::Observer, Self::Operator, Self::Reporter, Self::Approver, Self::Admin];

    /// The name in access files and on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Holder => "holder",
            Self::Observer => "observer",
            Self::Operator => "operator",
            Self::Reporter => "reporter",
            Self::Approver => "approver",
            Self::Admin => "admin",
        }
    }

    /// The role of this name.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.word() == word)
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}
