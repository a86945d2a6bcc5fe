//! Names of operations, as metrics and log lines spell them.

use leasehold_wire::v1::request::Operation;

/// The name of an operation: its gRPC method in snake case.
pub const fn operation_name(operation: &Operation) -> &'static str {
    match operation {
        Operation::Acquire(_) => "acquire",
        Operation::AcquireAll(_) => "acquire_all",
        Operation::Renew(_) => "renew",
        Operation::Release(_) => "release",
        Operation::Cancel(_) => "cancel",
        Operation::Progress(_) => "progress",
        Operation::Rotate(_) => "rotate",
        Operation::Check(_) => "check",
        Operation::Handoff(_) => "handoff",
        Operation::FinishDrain(_) => "finish_drain",
        Operation::Revoke(_) => "revoke",
        Operation::Free(_) => "free",
        Operation::RenewSession(_) => "renew_session",
        Operation::Reconcile(_) => "reconcile",
        Operation::CloseSession(_) => "close_session",
        Operation::Put(_) => "put",
        Operation::Delivery(_) => "delivery",
        Operation::Cache(_) => "cache",
        Operation::Pin(_) => "pin",
        Operation::Collect(_) => "collect",
        Operation::SetCapacity(_) => "set_capacity",
        Operation::ConfirmHold(_) => "confirm_hold",
        Operation::ResizeHold(_) => "resize_hold",
        Operation::Veto(_) => "veto",
        Operation::SetCharter(_) => "set_charter",
        Operation::RemoveCharter(_) => "remove_charter",
        Operation::WaiveQuarantine(_) => "waive_quarantine",
        Operation::SetMaxTtl(_) => "set_max_ttl",
        Operation::StepDown(_) => "step_down",
        Operation::Approve(_) => "approve",
        Operation::CancelProposal(_) => "cancel_proposal",
        Operation::ReportFences(_) => "report_fences",
        Operation::ForgetTarget(_) => "forget_target",
        Operation::ObserveToken(_) => "observe_token",
    }
}
