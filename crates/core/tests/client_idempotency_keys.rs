//! Idempotency keys that clients make: stored replies that only the same identity finds, also after a failover (L11, A6).

#[path = "support/client_idempotency_key_rules.rs"]
#[allow(dead_code, reason = "the mutation test runs all rules at once")]
mod client_idempotency_key_rules;

#[test]
fn a_retry_finds_the_reply_after_failovers() -> Result<(), String> {
    client_idempotency_key_rules::a_retry_finds_the_reply_after_failovers()
}

#[test]
fn another_identity_does_not_find_it() -> Result<(), String> {
    client_idempotency_key_rules::another_identity_does_not_find_it()
}

#[test]
fn a_key_is_forgotten_after_its_time() -> Result<(), String> {
    client_idempotency_key_rules::a_key_is_forgotten_after_its_time()
}

#[test]
fn nothing_is_opened_without_a_request() -> Result<(), String> {
    client_idempotency_key_rules::nothing_is_opened_without_a_request()
}

#[test]
fn a_refused_key_hides_no_rollback() -> Result<(), String> {
    client_idempotency_key_rules::a_refused_key_hides_no_rollback()
}
