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
fn a_charter_needs_the_approval_of_what_it_replaces() -> Result<(), String> {
    approvals::a_charter_needs_the_approval_of_what_it_replaces()
}

#[test]
fn a_handoff_of_anothers_lease_is_a_revocation() -> Result<(), String> {
    approvals::a_handoff_of_anothers_lease_is_a_revocation()
}

#[test]
fn a_quarantine_is_not_waived_or_shortened_alone() -> Result<(), String> {
    approvals::a_quarantine_is_not_waived_or_shortened_alone()
}

#[test]
fn an_approval_executes_only_what_was_named() -> Result<(), String> {
    approvals::an_approval_executes_only_what_was_named()
}

#[test]
fn who_may_act_alone_leaves_a_reason() -> Result<(), String> {
    approvals::who_may_act_alone_leaves_a_reason()
}

#[test]
fn only_what_could_be_executed_is_proposed() -> Result<(), String> {
    approvals::only_what_could_be_executed_is_proposed()
}

#[test]
fn a_full_journal_proposes_nothing() -> Result<(), String> {
    approvals::a_full_journal_proposes_nothing()
}

#[test]
fn one_identity_does_not_fill_the_list_of_proposals() -> Result<(), String> {
    approvals::one_identity_does_not_fill_the_list_of_proposals()
}
