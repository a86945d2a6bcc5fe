//! Conformance suite for the fenced cell.

use leasehold_fence::conformance::{self, check, race};

use crate::subject::CellSubject;

#[tokio::test(flavor = "multi_thread")]
async fn the_fence_passes_the_conformance_suite() {
    let obligations = check(&CellSubject::new(true)).await.unwrap_or_else(|error| panic!("{error}"));
    use conformance::{LIST_MARKS, LOST_MARK, SEALED, SEALED_TEXTS, SEQUENCES, STRICT};
    for obligation in [SEALED_TEXTS, SEALED, LOST_MARK, STRICT, SEQUENCES, LIST_MARKS] {
        assert!(obligations.contains(&obligation), "{obligations:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn token_numbers_never_decrease_in_ten_thousand_concurrent_operations() {
    let report = race(&CellSubject::new(true), 8, 10_000, 4).await.unwrap_or_else(|error| panic!("{error}"));
    assert!(report.refused > 0, "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_fence_the_race_breaks_the_order() {
    let error = race(&CellSubject::new(false), 8, 10_000, 4).await.expect_err("there is no fence");
    assert_eq!(error.obligation, conformance::RACE);
}
