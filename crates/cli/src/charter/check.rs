//! `leasehold charter check`: every question put to a charter, and what it answers.

use leasehold_core::charter::{Answer as Told, By, Charter, Finding, check, is_complete};
use serde_json::{Value, json};

use super::called;
use crate::told::Answer;

/// A question was left open.
const EXIT_HOLE: u8 = 8;

/// Checks charters, each with its prefix.
pub fn run(charters: &[(String, Charter)], in_json: bool) -> Answer {
    let checked: Vec<_> = charters.iter().map(|(prefix, charter)| (prefix.as_str(), check(charter))).collect();
    let open: usize = checked.iter().map(|(_, found)| found.iter().filter(|one| !one.is_answered()).count()).sum();
    let text = if in_json {
        Value::from_iter(checked.iter().map(|(prefix, found)| body(prefix, found))).to_string()
    } else {
        let told: Vec<_> = checked.iter().map(|(prefix, found)| for_people(prefix, found)).collect();
        told.join("\n\n")
    };
    match open {
        0 => text.into(),
        1 => Answer::but(text, "1 question is left open; answer it in the file".to_owned(), EXIT_HOLE),
        _ => Answer::but(text, format!("{open} questions are left open; answer them in the file"), EXIT_HOLE),
    }
}

fn for_people(prefix: &str, findings: &[Finding]) -> String {
    let mut lines = vec![format!("the charter of {}", called(prefix))];
    for finding in findings {
        let (mark, said) = match &finding.answer {
            Told::Answered { answer, .. } if finding.is_weak() => ("weak", answer),
            Told::Answered { answer, .. } => ("ok", answer),
            Told::Unanswered { next_step } => ("OPEN", next_step),
        };
        lines.push(format!("{mark:<5} {}: {}", finding.question.id(), finding.question.text()));
        lines.push(format!("      {said}"));
        lines.extend(finding.concerns.iter().map(|concern| format!("      but: {concern}")));
    }
    lines.join("\n")
}

fn body(prefix: &str, findings: &[Finding]) -> Value {
    let finding = |finding: &Finding| {
        let (by, answer, next_step) = match &finding.answer {
            Told::Answered { by: By::Field(field), answer } => (Some(*field), Some(answer), None),
            Told::Answered { by: By::Promise(promises), answer } => (Some(*promises), Some(answer), None),
            Told::Unanswered { next_step } => (None, None, Some(next_step)),
        };
        json!({
            "question": finding.question.id(),
            "axis": finding.question.axis().word(),
            "text": finding.question.text(),
            "answered": finding.is_answered(),
            "by": by,
            "answer": answer,
            "next_step": next_step,
            "concerns": finding.concerns,
        })
    };
    let findings_told: Vec<_> = findings.iter().map(finding).collect();
    json!({ "prefix": prefix, "complete": is_complete(findings), "findings": findings_told })
}
