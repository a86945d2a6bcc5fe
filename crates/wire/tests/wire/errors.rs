//! The error codes: the reference page matches the table, and every refusal of the core has a code.

use std::collections::BTreeSet;
use std::path::Path;

use leasehold_core::lease::EndReason;
use leasehold_core::name::{Name, NameError, NameProblem};
use leasehold_core::refusal::{AccessKind, BusyHolder, Cycle, CycleMember, Limit, NotCurrent, Refusal, RefusalSubject};
use leasehold_core::token::{Number, TokenError};
use leasehold_wire::json::ProblemBody;
use leasehold_wire::{Code, codes, problem, problem_from_status, problem_to_status, v1};

#[test]
fn the_reference_page_matches_the_table() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/errors.md");
    if std::env::var_os("LEASEHOLD_BLESS").is_some() {
        std::fs::write(&page, codes::reference_page()).expect("the page can be written");
    }
    let written = std::fs::read_to_string(&page).expect("the page exists");
    assert!(
        written == codes::reference_page(),
        "docs/reference/errors.md does not match the table; run this test with LEASEHOLD_BLESS=1 and review the diff"
    );
}

#[test]
fn every_code_has_a_unique_name_and_a_next_step() {
    let words: BTreeSet<_> = Code::ALL.iter().map(|code| code.word()).collect();
    assert_eq!(words.len(), Code::ALL.len());
    for code in Code::ALL {
        assert_eq!(Code::from_word(code.word()), Some(*code));
        assert!(code.word().bytes().all(|b| b.is_ascii_uppercase() || b == b'_'), "{}", code.word());
        assert!((400..600).contains(&code.http()), "{}", code.word());
        assert!(code.exit() != 0 && code.grpc() != tonic::Code::Ok, "{}", code.word());
        assert!(code.meaning().ends_with('.') && code.next_step().ends_with('.'), "{}", code.word());
    }
    assert_eq!(Code::from_word("busy"), None);
}

#[test]
fn the_table_contains_exactly_the_documented_codes() {
    let vocabulary = "INVALID_ARGUMENT UNAUTHENTICATED PERMISSION_DENIED NOT_FOUND METHOD_NOT_ALLOWED CONFLICT \
         LEASE_LOST STALE_TOKEN TOKEN_INVALID TOKEN_IMPLAUSIBLE TOKEN_EXHAUSTED WRONG_CLUSTER BUSY DEADLOCK RESOURCE_EXHAUSTED TIMEOUT \
         INDETERMINATE NOT_LEADER UNAVAILABLE UNSUPPORTED_VERSION FRAME_ERROR STORAGE_FULL STORAGE_FAILED CORRUPT \
         CONFIG REQUEST_TOO_OLD ROLLED_BACK QUARANTINED HELD_FOR_OPERATOR NOT_ADOPTED NOT_CURRENT CANCELLED \
         ACCESS_CHANGE APPROVAL_REQUIRED";
    let wanted: BTreeSet<_> = vocabulary.split_whitespace().collect();
    assert_eq!(Code::ALL.iter().map(|code| code.word()).collect::<BTreeSet<_>>(), wanted);
}

fn held_by(others: u32) -> Refusal {
    let by = BusyHolder { holder: "worker-2".into(), others, held_ms: 12_000, remaining_ms: 18_000 };
    Refusal::Busy { position: 4, holder: Some(Box::new(by)) }
}

/// One refusal of each kind.
fn refusals() -> Vec<Refusal> {
    let cycle = Cycle { members: vec![CycleMember { holder: "a".into(), waits_for: "x".into() }], length: 3 };
    let mut all = vec![
        Refusal::Invalid { field: "units", reason: "at least 1" },
        Refusal::Name(Name::parse("").unwrap_err()),
        Refusal::Name(Name::parse("_sys/a").unwrap_err()),
        Refusal::Name(NameError { field: "resource", problem: NameProblem::TooLong { bytes: 513, max: 512 } }),
        Refusal::Implausible { presented: Number::MAX },
        Refusal::NotFound(RefusalSubject::Session),
        Refusal::Conflict(RefusalSubject::Request),
        Refusal::Stale { presented: 3, mark: 9 },
        Refusal::busy(4),
        held_by(2),
        Refusal::AccessChange { held: AccessKind::Shared, requested: AccessKind::Exclusive },
        Refusal::OutOfRange { field: "ttl", requested: 660_000, min: 100, max: 600_000, by_charter: false },
        Refusal::Deadlock(Box::new(cycle)),
        Refusal::Deadlock(Box::default()),
        Refusal::Exhausted { limit: Limit::Metadata, max: 4_096, got: 4_097 },
        Refusal::TokensExhausted,
        Refusal::Timeout,
        Refusal::Cancelled,
        Refusal::TooOld { lowest: 17 },
        Refusal::Quarantined { remaining: 500, rolled_back: false },
        Refusal::Quarantined { remaining: 500, rolled_back: true },
        Refusal::HeldForOperator,
        Refusal::Denied("not yours"),
        Refusal::StorageFull,
    ];
    all.extend(EndReason::ALL.map(Refusal::Lost));
    all.extend([NotCurrent::Unknown, NotCurrent::NotHolder, NotCurrent::Superseded].map(Refusal::NotCurrent));
    let tokens = [
        TokenError::Absent,
        TokenError::Version { have: 2 },
        TokenError::Shape,
        TokenError::Checksum,
        TokenError::Zero,
        TokenError::TooLarge,
        TokenError::Implausible,
        TokenError::WrongCluster,
        TokenError::Resource,
        TokenError::Shared,
        TokenError::Slot,
    ];
    all.extend(tokens.map(Refusal::Token));
    all
}

#[test]
fn every_refusal_of_the_core_has_a_code_and_keeps_its_message() {
    for refusal in refusals() {
        let converted = problem(&refusal);
        assert_eq!(converted.known_code().map(Code::word), Some(refusal.code()), "{refusal:?}");
        assert_eq!(converted.message, refusal.to_string());
        assert!(!converted.next_step.is_empty(), "{refusal:?}");
    }
}

#[test]
fn the_text_of_a_refusal_fits_a_server() {
    for refusal in refusals().into_iter().chain(RefusalSubject::ALL.iter().map(|subject| Refusal::NotFound(*subject))) {
        let text = refusal.to_string();
        assert!(text.contains("; ") || matches!(refusal, Refusal::Denied(_) | Refusal::Invalid { .. }), "{text}");
        let (about_fences, about_ids) = (text.contains("this target"), text.contains("check its name or id"));
        assert!(!about_fences && !about_ids && !text.contains(" ms"), "{text}");
    }
}

#[test]
fn a_problem_has_the_fields_of_its_code() {
    let of = |refusal: Refusal| problem(&refusal);
    let invalid = of(Refusal::Invalid { field: "units", reason: "at least 1" });
    assert_eq!((invalid.field.as_str(), invalid.reason.as_str()), ("units", "at least 1"));
    let long = of(Refusal::Name(Name::parse(&"a".repeat(513)).unwrap_err()));
    assert_eq!((long.field.as_str(), long.max, long.got), ("resource", Some(512), Some(513)));
    let stale = of(Refusal::Stale { presented: 3, mark: 9 });
    assert_eq!((stale.presented, stale.mark), (Some(3), Some(9)));
    let full = of(Refusal::Exhausted { limit: Limit::Units, max: 4, got: 5 });
    assert_eq!((full.limit.as_str(), full.max, full.got), ("units", Some(4), Some(5)));
    assert_eq!(of(Refusal::busy(4)).queue_position, Some(4));
    let busy = of(held_by(2));
    assert_eq!((busy.holder.as_str(), busy.held_ms, busy.remaining_ms), ("worker-2", Some(12_000), Some(18_000)));
    let text =
        "held by worker-2 and 2 others for 12s, 18s left unless renewed (queue position 4); wait, or retry later";
    assert_eq!(busy.message, text);
    let ttl = of(Refusal::OutOfRange { field: "ttl", requested: 660_000, min: 100, max: 600_000, by_charter: false });
    assert_eq!((ttl.field.as_str(), ttl.max, ttl.got), ("ttl", Some(600_000), Some(660_000)));
    assert_eq!(ttl.reason, "11m is not allowed; the cluster allows 100ms to 10m");
    let change = of(Refusal::AccessChange { held: AccessKind::Shared, requested: AccessKind::Exclusive });
    assert_eq!((change.code.as_str(), change.reason.as_str()), ("ACCESS_CHANGE", "shared_to_exclusive"));
    assert_eq!(of(Refusal::TooOld { lowest: 17 }).lowest, Some(17));
    assert_eq!(of(Refusal::NotFound(RefusalSubject::Session)).subject, "session");
    assert_eq!(of(Refusal::Quarantined { remaining: 500, rolled_back: true }).retry_after_ms, Some(500));
    assert_eq!(of(Refusal::Token(TokenError::Shared)).reason, "shared");
    let version = of(Refusal::Token(TokenError::Version { have: 2 }));
    assert_eq!((version.have, version.want), (Some(2), Some(1)));
    assert_eq!(of(Refusal::NotCurrent(NotCurrent::NotHolder)).reason, "not_holder");
}

#[test]
fn a_lost_lease_has_state_and_reason_and_its_next_step_depends_on_the_state() {
    for reason in EndReason::ALL {
        let converted = problem(&Refusal::Lost(reason));
        assert_eq!(converted.lost(), Some(reason));
        assert_eq!(converted.state(), v1::LeaseState::from(reason.state()));
        assert_eq!(converted.next_step.contains("only after the operator agrees"), !reason.may_retry(), "{reason}");
    }
    assert_eq!(problem(&Refusal::Timeout).lost(), None);
}

#[test]
fn a_status_carries_the_complete_problem_and_its_code() {
    for refusal in refusals() {
        let converted = problem(&refusal);
        let carried = problem_to_status(converted.clone());
        assert_eq!(carried.code(), converted.known_code().expect("known").grpc());
        assert_eq!(carried.message(), converted.message);
        let code = carried.metadata().get(leasehold_wire::METADATA_CODE).expect("the metadata has the code");
        assert_eq!(code.to_str().expect("plain text"), converted.code);
        assert_eq!(problem_from_status(&carried), converted);
    }
}

#[test]
fn a_status_without_a_problem_means_that_the_outcome_is_unknown() {
    let code_of = |code, message: &str| problem_from_status(&tonic::Status::new(code, message)).known_code();
    let unknown =
        [tonic::Code::Unknown, tonic::Code::Internal, tonic::Code::DeadlineExceeded, tonic::Code::Unavailable];
    for unknown in unknown {
        assert_eq!(code_of(unknown, "broken pipe"), Some(Code::Indeterminate), "{unknown:?}");
    }
    let garbage = tonic::Status::with_details(tonic::Code::NotFound, "no", vec![0xff; 40].into());
    assert_eq!(problem_from_status(&garbage).known_code(), Some(Code::NotFound));
}

#[test]
fn a_problem_in_json_has_its_status_and_numbers_as_texts() {
    for refusal in refusals() {
        let converted = problem(&refusal);
        let code = converted.known_code().expect("known");
        let body = ProblemBody::from(converted);
        assert_eq!((body.status, body.code.as_str()), (code.http(), code.word()));
        assert_eq!(body.kind, format!("urn:leasehold:error:{}", code.word()));
        let text = serde_json::to_string(&body).expect("a body is JSON");
        assert_eq!(serde_json::from_str::<ProblemBody>(&text).expect("just written"), body);
    }
    let stale = ProblemBody::from(problem(&Refusal::Stale { presented: (1 << 53) + 1, mark: u64::MAX }));
    let json = serde_json::to_value(&stale).expect("a body is JSON");
    assert_eq!((&json["presented"], &json["mark"]), (&"9007199254740993".into(), &"18446744073709551615".into()));
    assert!(json.get("limit").is_none(), "fields that the code does not set are absent");
}
