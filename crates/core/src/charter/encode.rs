//! Binary codec of charters: a version, then every term in a fixed order, so that each charter has exactly one encoding.

use super::{
    AfterRevocation, AtExpiry, Charter, HandoffMode, HandoffTerms, OnDeadlock, Payload, Preemption, RenewalProof,
    StartsFrom, Target, TargetMode, TokenOnRenewal, Uncommitted,
};
use crate::codec::{DecodeError, Reader, Write};
use crate::lease::Validity;
use crate::limits;

const VERSION: u8 = 1;
/// Like version 1, and each target ends with its reporter. Written only if a target has one, so that every charter keeps exactly one
/// encoding.
const VERSION_REPORTERS: u8 = 2;
/// The code of a missing answer; a choice is stored as its own code plus one.
const UNANSWERED: u8 = 0;

impl Charter {
    /// Encodes the charter.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        self.write(&mut out);
        out
    }

    /// Decodes a charter; trailing bytes are an error.
    pub fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut from = Reader::new(bytes);
        let charter = Self::read(&mut from)?;
        from.finish()?;
        Ok(charter)
    }

    /// Appends the encoded charter.
    pub fn write(&self, out: &mut impl Write) {
        let reporters = self.targets.iter().any(|target| target.reporter.is_some());
        out.u8(if reporters { VERSION_REPORTERS } else { VERSION });
        maybe_choice(out, self.payload.map(Payload::code));
        maybe_choice(out, self.validity.map(validity_code));
        maybe_text(out, self.observer.as_deref());
        maybe_text(out, self.price_of_failure.as_deref());
        out.num(self.authority.len() as u64);
        for item in &self.authority {
            out.text(item);
        }
        out.num(self.targets.len() as u64);
        for target in &self.targets {
            write_target(target, out);
            if reporters {
                maybe_text(out, target.reporter.as_deref());
            }
        }
        match self.renewal {
            None => out.u8(UNANSWERED),
            Some(RenewalProof::Pulse) => out.u8(1),
            Some(RenewalProof::Progress { window_ms }) => write_coded(out, 2, window_ms),
        }
        out.maybe(self.ttl_min_ms);
        out.maybe(self.ttl_max_ms);
        out.maybe(self.max_hold_ms);
        match self.handoff {
            None => out.u8(UNANSWERED),
            Some(HandoffTerms { mode, drain_ms }) => write_coded(out, mode.code() + 1, drain_ms),
        }
        maybe_choice(out, self.uncommitted.map(Uncommitted::code));
        match &self.starts_from {
            None => out.u8(UNANSWERED),
            Some(StartsFrom::Newest) => out.u8(1),
            Some(StartsFrom::Nothing) => out.u8(2),
            Some(StartsFrom::Key(key)) => {
                out.u8(3);
                out.text(key);
            }
        }
        match self.at_expiry {
            AtExpiry::Free => out.u8(0),
            AtExpiry::Veto { max_ms } => write_coded(out, 1, max_ms),
        }
        out.u8(self.after_revocation.code());
        out.u8(self.deadlock.code());
        match self.preemption {
            Preemption::Never => out.u8(0),
            Preemption::LowerPriority { grace_ms } => write_coded(out, 1, grace_ms),
        }
        out.u8(self.token_on_renewal.code());
        out.maybe(self.capacity.map(u64::from));
    }

    /// Decodes a charter from the front of the input. Bounds its allocations; [`Charter::validate`] checks the terms.
    pub fn read(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let start = from.position();
        let reporters = match from.u8()? {
            VERSION => false,
            VERSION_REPORTERS => true,
            _ => return Err(from.wrong("a charter of an unknown version")),
        };
        // The order of the fields here is the order of the bytes.
        let charter = Self {
            payload: read_maybe_choice(from, Payload::ALL)?,
            validity: read_maybe_choice(from, &VALIDITIES)?,
            observer: read_maybe_text(from)?,
            price_of_failure: read_maybe_text(from)?,
            authority: list(from, limits::CHARTER_AUTHORITY, |from| text(from, limits::CHARTER_TEXT_BYTES))?,
            targets: list(from, limits::CHARTER_TARGETS, |from| read_target(from, reporters))?,
            renewal: match from.u8()? {
                UNANSWERED => None,
                1 => Some(RenewalProof::Pulse),
                2 => Some(RenewalProof::Progress { window_ms: from.num()? }),
                _ => return Err(from.wrong("no such proof of renewal")),
            },
            ttl_min_ms: from.maybe()?,
            ttl_max_ms: from.maybe()?,
            max_hold_ms: from.maybe()?,
            handoff: match read_maybe_choice(from, HandoffMode::ALL)? {
                None => None,
                Some(mode) => Some(HandoffTerms { mode, drain_ms: from.num()? }),
            },
            uncommitted: read_maybe_choice(from, Uncommitted::ALL)?,
            starts_from: match from.u8()? {
                UNANSWERED => None,
                1 => Some(StartsFrom::Newest),
                2 => Some(StartsFrom::Nothing),
                3 => Some(StartsFrom::Key(text(from, limits::STATE_KEY_BYTES)?)),
                _ => return Err(from.wrong("no such start")),
            },
            at_expiry: match from.u8()? {
                0 => AtExpiry::Free,
                1 => AtExpiry::Veto { max_ms: from.num()? },
                _ => return Err(from.wrong("no such expiry")),
            },
            after_revocation: read_choice(from, AfterRevocation::ALL)?,
            deadlock: read_choice(from, OnDeadlock::ALL)?,
            preemption: match from.u8()? {
                0 => Preemption::Never,
                1 => Preemption::LowerPriority { grace_ms: from.num()? },
                _ => return Err(from.wrong("no such preemption")),
            },
            token_on_renewal: read_choice(from, TokenOnRenewal::ALL)?,
            capacity: if from.flag()? { Some(from.num32()?) } else { None },
        };
        if from.position() - start > limits::CHARTER_BYTES {
            return Err(from.wrong("charter too large"));
        }
        Ok(charter)
    }
}

const VALIDITIES: [Validity; 3] = [Validity::Session, Validity::Quorum, Validity::Issuer];

const fn validity_code(validity: Validity) -> u8 {
    match validity {
        Validity::Session => 0,
        Validity::Quorum => 1,
        Validity::Issuer => 2,
    }
}

fn write_target(target: &Target, out: &mut impl Write) {
    out.text(&target.name);
    out.text(&target.at);
    match &target.mode {
        None => out.u8(UNANSWERED),
        Some(TargetMode::Forced) => out.u8(1),
        Some(TargetMode::Cooperative) => out.u8(2),
        Some(TargetMode::Grantor) => out.u8(3),
        Some(TargetMode::BoundedPause { assumed_ms, blast_radius }) => {
            write_coded(out, 4, *assumed_ms);
            maybe_text(out, blast_radius.as_deref());
        }
        Some(TargetMode::None { comment }) => {
            out.u8(5);
            maybe_text(out, comment.as_deref());
        }
    }
}

fn read_target(from: &mut Reader<'_>, reporters: bool) -> Result<Target, DecodeError> {
    Ok(Target {
        name: text(from, limits::TARGET_NAME_BYTES)?,
        at: text(from, limits::CHARTER_TEXT_BYTES)?,
        mode: match from.u8()? {
            UNANSWERED => None,
            1 => Some(TargetMode::Forced),
            2 => Some(TargetMode::Cooperative),
            3 => Some(TargetMode::Grantor),
            4 => Some(TargetMode::BoundedPause { assumed_ms: from.num()?, blast_radius: read_maybe_text(from)? }),
            5 => Some(TargetMode::None { comment: read_maybe_text(from)? }),
            _ => return Err(from.wrong("no such mode")),
        },
        reporter: if reporters { read_maybe_text(from)? } else { None },
    })
}

fn write_coded(out: &mut impl Write, code: u8, number: u64) {
    out.u8(code);
    out.num(number);
}

fn maybe_choice(out: &mut impl Write, code: Option<u8>) {
    out.u8(code.map_or(UNANSWERED, |code| code + 1));
}

fn read_maybe_choice<T: Copy>(from: &mut Reader<'_>, all: &[T]) -> Result<Option<T>, DecodeError> {
    match from.u8()? {
        UNANSWERED => Ok(None),
        code => all.get(usize::from(code) - 1).copied().map(Some).ok_or_else(|| from.wrong("no such choice")),
    }
}

fn read_choice<T: Copy>(from: &mut Reader<'_>, all: &[T]) -> Result<T, DecodeError> {
    let code = from.u8()?;
    all.get(usize::from(code)).copied().ok_or_else(|| from.wrong("no such choice"))
}

fn maybe_text(out: &mut impl Write, text: Option<&str>) {
    out.flag(text.is_some());
    if let Some(text) = text {
        out.text(text);
    }
}

fn read_maybe_text(from: &mut Reader<'_>) -> Result<Option<String>, DecodeError> {
    if from.flag()? { text(from, limits::CHARTER_TEXT_BYTES).map(Some) } else { Ok(None) }
}

fn text(from: &mut Reader<'_>, limit: usize) -> Result<String, DecodeError> {
    let text = from.text()?;
    if text.len() > limit { Err(from.wrong("text too long")) } else { Ok(text.to_owned()) }
}

fn list<T>(
    from: &mut Reader<'_>,
    limit: usize,
    mut one: impl FnMut(&mut Reader<'_>) -> Result<T, DecodeError>,
) -> Result<Vec<T>, DecodeError> {
    let count = from.num()?;
    if count > limit as u64 {
        return Err(from.wrong("list too long"));
    }
    (0..count).map(|_| one(from)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::fixtures::{any_charter, complete, target};
    use super::*;
    use proptest::prelude::*;

    /// Every kind of target and every term away from its default.
    fn golden_charter() -> Charter {
        Charter {
            targets: vec![
                target("ledger", Some(TargetMode::Forced)),
                target("queue", Some(TargetMode::Cooperative)),
                target("checkpoint", Some(TargetMode::Grantor)),
                target(
                    "mail",
                    Some(TargetMode::BoundedPause { assumed_ms: 2_000, blast_radius: Some("one mail".into()) }),
                ),
                target("printer", Some(TargetMode::None { comment: Some("paper has no memory".into()) })),
                target("unknown", None),
            ],
            starts_from: Some(StartsFrom::Key("offset".into())),
            at_expiry: AtExpiry::Veto { max_ms: 1_500 },
            deadlock: OnDeadlock::Revoke,
            preemption: Preemption::LowerPriority { grace_ms: 750 },
            token_on_renewal: TokenOnRenewal::Rotate,
            capacity: Some(300),
            ..complete()
        }
    }

    fn golden() -> Vec<u8> {
        let digits: Vec<u8> = include_str!("../../testdata/golden/charter.hex")
            .lines()
            .filter(|line| !line.starts_with('#'))
            .flat_map(str::bytes)
            .map(|digit| char::from(digit).to_digit(16).expect("a hex digit") as u8)
            .collect();
        digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    #[test]
    fn the_encoding_matches_the_golden_file() {
        assert_eq!(hex(&golden_charter().encode()), hex(&golden()));
        assert_eq!(Charter::decode(&golden()), Ok(golden_charter()));
    }

    #[test]
    fn a_charter_without_answers_is_twenty_bytes() {
        let bytes = Charter::default().encode();
        assert_eq!(hex(&bytes), "0100000000000000000000000000000001000000");
        assert_eq!(Charter::decode(&bytes), Ok(Charter::default()));
    }

    #[test]
    fn an_unknown_version_and_trailing_bytes_are_refused() {
        let mut bytes = complete().encode();
        bytes.push(0);
        assert_eq!(Charter::decode(&bytes).expect_err("trailing").problem, "bytes after the end");
        bytes[0] = VERSION_REPORTERS + 1;
        assert_eq!(Charter::decode(&bytes).expect_err("version").problem, "a charter of an unknown version");
        assert_eq!(Charter::decode(&[]).expect_err("empty").problem, "cut short");
    }

    #[test]
    fn a_truncated_charter_is_refused() {
        let bytes = golden();
        for end in 0..bytes.len() {
            assert!(Charter::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
    }

    #[test]
    fn lengths_above_their_limits_are_refused() {
        let refused = |charter: Charter| Charter::decode(&charter.encode()).expect_err("too long").problem;
        let long = "a".repeat(limits::CHARTER_TEXT_BYTES + 1);
        assert_eq!(refused(Charter { observer: Some(long.clone()), ..Charter::default() }), "text too long");
        assert_eq!(refused(Charter { authority: vec![long], ..Charter::default() }), "text too long");
        let many = vec![String::new(); limits::CHARTER_AUTHORITY + 1];
        assert_eq!(refused(Charter { authority: many, ..Charter::default() }), "list too long");
        let many = vec![target("t", None); limits::CHARTER_TARGETS + 1];
        assert_eq!(refused(Charter { targets: many, ..Charter::default() }), "list too long");
        let heavy = vec!["a".repeat(limits::CHARTER_TEXT_BYTES); 17];
        assert_eq!(refused(Charter { authority: heavy, ..Charter::default() }), "charter too large");
    }

    #[test]
    fn a_claimed_length_alone_allocates_nothing() {
        let mut bytes = vec![VERSION, 0, 0, 1];
        bytes.num(u64::MAX);
        assert_eq!(Charter::decode(&bytes).expect_err("no such bytes").problem, "cut short");
        let mut bytes = vec![VERSION, 0, 0, 0, 0];
        bytes.num(u64::MAX);
        assert_eq!(Charter::decode(&bytes).expect_err("no such list").problem, "list too long");
    }

    proptest! {
        #[test]
        fn an_encoded_charter_decodes_to_itself(charter in any_charter()) {
            prop_assert_eq!(Charter::decode(&charter.encode()), Ok(charter));
        }

        #[test]
        fn each_charter_has_only_one_encoding(
            flips in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        ) {
            let mut bytes = golden();
            for (index, value) in flips {
                let index = index.index(bytes.len());
                bytes[index] = value;
            }
            if let Ok(charter) = Charter::decode(&bytes) {
                prop_assert_eq!(charter.encode(), bytes);
            }
        }

        #[test]
        fn arbitrary_bytes_never_panic(mut bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let Some(first) = bytes.first_mut() {
                *first = VERSION;
            }
            if let Ok(charter) = Charter::decode(&bytes) {
                prop_assert_eq!(charter.encode(), bytes);
            }
        }
    }
}
