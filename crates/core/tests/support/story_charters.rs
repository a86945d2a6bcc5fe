//! Charters in stories: terms after `with`, one after the other.

use leasehold_core::charter::{
    AfterRevocation, AtExpiry, Charter, HandoffMode, HandoffTerms, OnDeadlock, Preemption, RenewalProof, Target,
    TargetMode, TokenOnRenewal,
};

use super::tokenizer::WordReader;

pub fn charter(words: &mut WordReader<'_>) -> Result<Charter, String> {
    let mut charter = Charter::default();
    loop {
        term(&mut charter, words)?;
        if !words.take(",") {
            return Ok(charter);
        }
    }
}

fn term(charter: &mut Charter, words: &mut WordReader<'_>) -> Result<(), String> {
    match words.word("a term")? {
        "capacity" => charter.capacity = Some(words.number("a capacity")?),
        "handoff" => {
            let mode = words.word("gap or overlap")?;
            let mode = HandoffMode::from_word(mode).ok_or_else(|| format!("{mode} is no handoff mode"))?;
            charter.handoff = Some(HandoffTerms { mode, drain_ms: words.millis("a drain period")? });
        }
        "preempt" => {
            words.must("after")?;
            charter.preemption = Preemption::LowerPriority { grace_ms: words.millis("a grace")? };
        }
        "deadlock" => {
            let word = words.word("a deadlock rule")?;
            charter.deadlock = OnDeadlock::from_word(word).ok_or_else(|| format!("{word} is no deadlock rule"))?;
        }
        "hold" => {
            words.must("for operator")?;
            charter.after_revocation = AfterRevocation::HoldForOperator;
        }
        "rotate" => {
            words.must("on renewal")?;
            charter.token_on_renewal = TokenOnRenewal::Rotate;
        }
        "max" => {
            words.must("hold")?;
            charter.max_hold_ms = Some(words.millis("a maximum hold")?);
        }
        "progress" => charter.renewal = Some(RenewalProof::Progress { window_ms: words.millis("a progress window")? }),
        "ttl" => {
            charter.ttl_min_ms = Some(words.millis("the shortest ttl")?);
            words.must("to")?;
            charter.ttl_max_ms = Some(words.millis("the longest ttl")?);
        }
        "veto" => charter.at_expiry = AtExpiry::Veto { max_ms: words.millis("the longest veto")? },
        "reporter" => {
            let target = charter.targets.last_mut().ok_or("a reporter follows its target")?;
            target.reporter = Some(words.word("an identity")?.into());
        }
        "target" => {
            let (name, mode) = (words.word("a target")?, words.word("a target mode")?);
            let mode = match mode {
                "forced" => TargetMode::Forced,
                "cooperative" => TargetMode::Cooperative,
                "grantor" => TargetMode::Grantor,
                "none" => TargetMode::None { comment: None },
                other => return Err(format!("{other} is no target mode")),
            };
            charter.targets.push(Target {
                name: name.into(),
                at: "somewhere".into(),
                mode: Some(mode),
                reporter: None,
            });
        }
        "nothing" => {}
        other => return Err(format!("{other} is no term of a charter")),
    }
    Ok(())
}
