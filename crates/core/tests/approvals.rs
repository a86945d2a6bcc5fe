//! Two-person approval (A14): who may approve, what is executed, and when a proposal ends.

#[path = "support/approvals.rs"]
#[allow(dead_code, reason = "the mutation test runs all rules at once")]
mod approvals;

#[test]
fn one_identity_alone_does_nothing() -> Result<(), String> {
    approvals::one_identity_alone_does_nothing()
}

#[test]
fn another_identity_executes_a_proposal_once() -> Result<(), String> {
    approvals::another_identity_executes_it_once()
}

#[test]
fn what_was_approved_is_what_is_executed() -> Result<(), String> {
    approvals::what_was_approved_is_what_is_executed()
}

#[test]
fn a_proposal_expires_and_can_be_withdrawn() -> Result<(), String> {
    approvals::a_proposal_expires_and_can_be_withdrawn()
}

#[test]
fn proposals_survive_a_failover() -> Result<(), String> {
    approvals::proposals_survive_a_failover()
}

#[test]
fn only_what_could_be_executed_is_proposed() -> Result<(), String> {
    approvals::only_what_could_be_executed_is_proposed()
}
