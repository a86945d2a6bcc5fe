//! Random claims, appends and crashes of several holders: no entry below the mark is ever read (F1).

use leasehold_fence::Error;
use leasehold_fence::file::FencedLog;
use proptest::prelude::*;

use crate::fixture::TestLog;
use crate::support::token;

#[derive(Clone, Copy, Debug)]
enum Action {
    Claim(u64),
    Append(u64),
    /// Reopen the log.
    Reopen,
    /// A holder dies during an append: a partial entry remains at the end.
    Torn(u8),
}

fn action() -> impl Strategy<Value = (usize, Action)> {
    let action = prop_oneof![
        3 => (1..8_u64).prop_map(Action::Claim),
        6 => (1..8_u64).prop_map(Action::Append),
        1 => Just(Action::Reopen),
        1 => any::<u8>().prop_map(Action::Torn),
    ];
    (0..3_usize, action)
}

proptest! {
    #[test]
    fn token_numbers_never_decrease_in_any_order_of_claims_appends_and_crashes(
        actions in prop::collection::vec(action(), 1..60)
    ) {
        let fixture = TestLog::new();
        let mut handles: Vec<FencedLog> = (0..3).map(|_| fixture.open()).collect();
        let mut mark = 0;
        let mut appended = Vec::new();
        for (handle, action) in actions {
            let log = &mut handles[handle];
            match action {
                Action::Claim(n) | Action::Append(n) => {
                    let append = matches!(action, Action::Append(_));
                    let result = if append { log.append(token(n), [7; 90]) } else { log.claim(token(n)) };
                    match result {
                        Ok(_) => {
                            prop_assert!(n >= mark);
                            mark = n;
                            if append { appended.push(n); }
                        }
                        Err(Error::Refused(_)) => prop_assert!(n < mark),
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Action::Reopen => *log = fixture.open(),
                Action::Torn(length) => {
                    let mut bytes = fixture.bytes();
                    // The start of a complete entry, if there is one, and never all of it.
                    let torn: Vec<u8> = bytes[40..].iter().copied().take(usize::from(length) % 37).collect();
                    bytes.extend(torn);
                    fixture.overwrite(&bytes);
                }
            }
        }
        prop_assert!(appended.is_sorted());
        prop_assert_eq!(fixture.numbers(), appended);
        let stored = fixture.open().mark().expect("there").map_or(0, |mark| mark.get());
        prop_assert_eq!(stored, mark);
    }
}
