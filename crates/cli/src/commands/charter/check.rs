//! `leasehold charter check`: lists every question about a charter with its answer.

use leasehold_core::charter::{AnswerSource, Charter, CharterFinding, CheckAnswer, check, is_complete};
use serde_json::{Value, json};

use super::prefix_text;
use crate::global_args::GlobalArgs;
use crate::output::CommandOutput;
use crate::styled_text::{Style, StyledText};

/// Exit code if a question is unanswered.
const EXIT_UNANSWERED: u8 = 8;

/// Checks charters, each with its prefix.
pub fn run(charters: &[(String, Charter)], is_quiet: bool, global: &GlobalArgs) -> CommandOutput {
    let checked: Vec<_> = charters.iter().map(|(prefix, charter)| (prefix.as_str(), check(charter))).collect();
    let unanswered: usize = charters.iter().map(|(_, charter)| unanswered(charter)).sum();
    let body = Value::from_iter(checked.iter().map(|(prefix, findings)| charter_json(prefix, findings)));
    let output = global.output(&body, || {
        let charters = checked.iter().map(|(prefix, findings)| charter_text(prefix, findings));
        StyledText::join(charters, "\n\n")
    });
    let output = if is_quiet { output.without_text() } else { output };
    if unanswered == 0 {
        return output;
    }
    let it = if unanswered == 1 { "it" } else { "them" };
    let note = format!("{}; answer {it} in the file", unanswered_text(unanswered));
    output.with_note(Some(note)).with_exit(EXIT_UNANSWERED)
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

fn charter_text(prefix: &str, findings: &[CharterFinding]) -> StyledText {
    let line = |text: String| StyledText::styled(&text, None);
    let mut lines = vec![line(format!("charter of {}", prefix_text(prefix)))];
    for finding in findings {
        let (label, style, text) = match &finding.answer {
            CheckAnswer::Answered { answer, .. } if finding.is_weak() => ("weak", Style::Warning, answer),
            CheckAnswer::Answered { answer, .. } => ("ok", Style::Good, answer),
            CheckAnswer::Unanswered { next_step } => ("OPEN", Style::Bad, next_step),
        };
        let label = StyledText::styled(&format!("{label:<5}"), Some(style));
        let question = line(format!(" {}: {}", finding.question.id(), finding.question.text()));
        lines.push(StyledText::join([label, question], ""));
        lines.push(line(format!("      {text}")));
        lines.extend(finding.warnings.iter().map(|warning| line(format!("      warning: {warning}"))));
    }
    StyledText::join(lines, "\n")
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
