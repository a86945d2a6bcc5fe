//! `leasehold charter check`: lists every question about a charter with its answer.

use leasehold_core::charter::{AnswerSource, Charter, CharterFinding, CheckAnswer, check, is_complete};
use serde_json::{Value, json};

use super::prefix_text;
use crate::output::{CommandOutput, json as to_json};
use crate::terminal_text::escape_line;

/// Exit code if a question is unanswered.
const EXIT_UNANSWERED: u8 = 8;

/// Checks charters, each with its prefix.
pub fn run(charters: &[(String, Charter)], in_json: bool) -> CommandOutput {
    let checked: Vec<_> = charters.iter().map(|(prefix, charter)| (prefix.as_str(), check(charter))).collect();
    let unanswered: usize = charters.iter().map(|(_, charter)| unanswered(charter)).sum();
    let text = if in_json {
        to_json(&Value::from_iter(checked.iter().map(|(prefix, findings)| charter_json(prefix, findings))))
    } else {
        let charters: Vec<_> = checked.iter().map(|(prefix, findings)| charter_text(prefix, findings)).collect();
        charters.join("\n\n")
    };
    if unanswered == 0 {
        return text.into();
    }
    let it = if unanswered == 1 { "it" } else { "them" };
    let note = format!("{}; answer {it} in the file", unanswered_text(unanswered));
    CommandOutput::with_exit_code(text, note, EXIT_UNANSWERED)
}

/// Number of questions that a charter does not answer.
pub fn unanswered(charter: &Charter) -> usize {
    check(charter).iter().filter(|finding| !finding.is_answered()).count()
}

pub fn unanswered_text(count: usize) -> String {
    match count {
        1 => "1 question is unanswered".to_owned(),
        _ => format!("{count} questions are unanswered"),
    }
}

fn charter_text(prefix: &str, findings: &[CharterFinding]) -> String {
    let mut lines = vec![format!("charter of {}", escape_line(prefix_text(prefix)))];
    for finding in findings {
        let (label, text) = match &finding.answer {
            CheckAnswer::Answered { answer, .. } if finding.is_weak() => ("weak", answer),
            CheckAnswer::Answered { answer, .. } => ("ok", answer),
            CheckAnswer::Unanswered { next_step } => ("OPEN", next_step),
        };
        lines.push(format!("{label:<5} {}: {}", finding.question.id(), finding.question.text()));
        lines.push(format!("      {}", escape_line(text)));
        lines.extend(finding.warnings.iter().map(|warning| format!("      warning: {}", escape_line(warning))));
    }
    lines.join("\n")
}

fn charter_json(prefix: &str, findings: &[CharterFinding]) -> Value {
    let finding_json = |finding: &CharterFinding| {
        let (by, answer, next_step) = match &finding.answer {
            CheckAnswer::Answered { by: AnswerSource::Field(field), answer } => (Some(*field), Some(answer), None),
            CheckAnswer::Answered { by: AnswerSource::Promise(promises), answer } => {
                (Some(*promises), Some(answer), None)
            }
            CheckAnswer::Unanswered { next_step } => (None, None, Some(next_step)),
        };
        json!({
            "question": finding.question.id(),
            "axis": finding.question.axis().word(),
            "text": finding.question.text(),
            "answered": finding.is_answered(),
            "by": by,
            "answer": answer,
            "next_step": next_step,
            "warnings": finding.warnings,
        })
    };
    let body: Vec<_> = findings.iter().map(finding_json).collect();
    json!({ "prefix": prefix, "complete": is_complete(findings), "findings": body })
}
