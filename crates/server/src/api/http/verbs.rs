//! What stands behind the colon of a path: one list for those who serve it, refuse it and describe it.

macro_rules! verbs {
    ($(#[$about:meta])* $of:ident: $($verb:ident = $word:literal),+) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $of {
            $(#[doc = $word] $verb,)+
        }

        impl $of {
            /// Every word.
            pub const WORDS: [&'static str; [$($word),+].len()] = [$($word),+];

            /// The verb of a word.
            pub fn from_word(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$verb),)+
                    _ => None,
                }
            }
        }
    };
}

verbs! {
    /// What is asked at a resource: `POST /v1/leases/{name}:verb`.
    OfLease: Acquire = "acquire", Renew = "renew", Release = "release", Check = "check", Handoff = "handoff",
        Revoke = "revoke", Free = "free", Capacity = "capacity"
}

verbs! {
    /// What is asked of a session: `POST /v1/sessions/{session}:verb`.
    OfSession: Renew = "renew", Close = "close"
}
