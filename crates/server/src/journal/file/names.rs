//! What the files of a journal are called.

/// Which journal this is, and who opened it last.
pub const IDENTITY: &str = "journal";
/// The process that writes; for people only, the lock is the directory's.
pub const PID: &str = "pid";
/// The next segment, full of zeros.
pub const SPARE: &str = "spare";

/// A restore into this directory has begun and not ended.
pub const RESTORING: &str = "restoring";

const SEGMENT: &str = "segment-";
const SNAPSHOT: &str = "snapshot-";
const TRAIL: &str = "trail-";
const DRAFT: &str = ".tmp";
const DIGITS: usize = 20;

/// What a name says that a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A segment, by number.
    Segment(u64),
    /// A snapshot, by sequence.
    Snapshot(u64),
    /// A part of the audit trail, by number.
    Trail(u64),
    /// The identity.
    Identity,
    /// The next segment.
    Spare,
    /// The mark of a restore.
    Restoring,
    /// Left half-written.
    Draft,
    /// It has the beginning of one of ours, and not its form.
    Misnamed,
    /// Not ours.
    Other,
}

/// A segment's name.
pub fn segment(number: u64) -> String {
    format!("{SEGMENT}{number:0DIGITS$}")
}

/// A snapshot's name.
pub fn snapshot(sequence: u64) -> String {
    format!("{SNAPSHOT}{sequence:0DIGITS$}")
}

/// The name of a part of the audit trail.
pub fn trail(number: u64) -> String {
    format!("{TRAIL}{number:0DIGITS$}")
}

/// The name under which a file is written before it gets its own.
pub fn draft(name: &str) -> String {
    format!("{name}{DRAFT}")
}

/// Tells a file by its name.
pub fn kind(name: &str) -> Kind {
    let number = |digits: &str| match digits.parse() {
        Ok(number) if digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(number),
        _ => None,
    };
    if let Some(whole) = name.strip_suffix(DRAFT) {
        return if matches!(kind(whole), Kind::Other | Kind::Misnamed | Kind::Draft) {
            Kind::Other
        } else {
            Kind::Draft
        };
    }
    if let Some(digits) = name.strip_prefix(SEGMENT) {
        return number(digits).map_or(Kind::Misnamed, Kind::Segment);
    }
    if let Some(digits) = name.strip_prefix(SNAPSHOT) {
        return number(digits).map_or(Kind::Misnamed, Kind::Snapshot);
    }
    if let Some(digits) = name.strip_prefix(TRAIL) {
        // Nothing is recovered from it, so that one with a strange name harms nobody.
        return number(digits).map_or(Kind::Other, Kind::Trail);
    }
    match name {
        IDENTITY => Kind::Identity,
        SPARE => Kind::Spare,
        RESTORING => Kind::Restoring,
        _ => Kind::Other,
    }
}
