//! OpenAPI specification of two-person approval.

use leasehold_wire::Code;
use leasehold_wire::json::{ApproveBody, DoneBody, ProposalBody};
use serde_json::json;

use super::Document;
use super::operation::OperationSpec;

pub fn describe(document: &mut Document) {
    let digest = "5c".repeat(32);
    let proposal = json!({
        "proposal": 17, "action": "free", "resource": "jobs/settle", "comment": "books were compared by hand",
        "proposer": "spiffe://example/ops/ann", "digest": digest, "remaining_ms": 840_000
    });
    let list = OperationSpec::new("server", "listProposals", "List the proposals that wait for an approval")
        .responds_list::<ProposalBody>("The proposals, by number", json!([proposal]))
        .problems(&[]);
    document.get("/v1/proposals", list);
    let refused =
        [Code::NotFound, Code::Conflict, Code::RequestTooOld, Code::LeaseLost, Code::TokenInvalid, Code::WrongCluster];
    let approve = OperationSpec::new("server", "approve", "Approve and execute a proposal of another identity")
        .description("Refused to the identity and the credential that proposed it, and if the leases, the charter or the setting that it named have changed since. The command is executed once.")
        .path("proposal", "Number of the proposal", "17")
        .command_headers()
        .body::<ApproveBody>(true, json!({ "digest": digest }))
        .responds::<DoneBody>("The command is executed", json!({ "done": true }))
        .problems(&refused)
        .problems(&[Code::RolledBack, Code::StorageFull]);
    document.post("/v1/proposals/{proposal}:approve", approve);
    let cancel = OperationSpec::new("server", "cancelProposal", "Withdraw a proposal")
        .path("proposal", "Number of the proposal", "17")
        .command_headers()
        .responds::<DoneBody>("The proposal is withdrawn", json!({ "done": true }))
        .problems(&refused)
        .problems(&[Code::RolledBack, Code::StorageFull]);
    document.post("/v1/proposals/{proposal}:cancel", cancel);
}
