//! Whatever several holders do in whatever order, over crashes too: no append below the mark is ever read (F1).

use leasehold_fence::Error;
use leasehold_fence::file::Log;
use proptest::prelude::*;

use crate::events::Events;
use crate::support::token;

#[derive(Clone, Copy, Debug)]
enum Step {
    Claim(u64),
    Append(u64),
    /// Forget the handle and open the log again.
    Reopen,
    /// A holder dies in its append: part of an entry is left behind the end.
    Torn(u8),
}

fn step() -> impl Strategy<Value = (usize, Step)> {
    let what = prop_oneof![
        3 => (1..8_u64).prop_map(Step::Claim),
        6 => (1..8_u64).prop_map(Step::Append),
        1 => Just(Step::Reopen),
        1 => any::<u8>().prop_map(Step::Torn),
    ];
    (0..3_usize, what)
}

proptest! {
    #[test]
    fn in_any_order_of_claims_appends_and_crashes_the_tokens_of_what_is_read_never_fall(
        steps in prop::collection::vec(step(), 1..60)
    ) {
        let events = Events::new();
        let mut handles: Vec<Log> = (0..3).map(|_| events.open()).collect();
        let mut mark = 0;
        let mut landed = Vec::new();
        for (who, what) in steps {
            let log = &mut handles[who];
            match what {
                Step::Claim(n) | Step::Append(n) => {
                    let append = matches!(what, Step::Append(_));
                    let answer = if append { log.append(&token(n), &[7; 90]) } else { log.claim(&token(n)) };
                    match answer {
                        Ok(_) => {
                            prop_assert!(n >= mark);
                            mark = n;
                            if append { landed.push(n); }
                        }
                        Err(Error::Refused(_)) => prop_assert!(n < mark),
                        Err(other) => prop_assert!(false, "{other}"),
                    }
                }
                Step::Reopen => *log = events.open(),
                Step::Torn(length) => {
                    let mut bytes = events.bytes();
                    // The beginning of a whole entry, if there is one, and never all of it.
                    let torn: Vec<u8> = bytes[40..].iter().copied().take(usize::from(length) % 37).collect();
                    bytes.extend(torn);
                    events.overwrite(&bytes);
                }
            }
        }
        prop_assert!(landed.is_sorted());
        prop_assert_eq!(events.numbers(), landed);
        let stands = events.open().mark().expect("there").map_or(0, |mark| mark.get());
        prop_assert_eq!(stands, mark);
    }
}
