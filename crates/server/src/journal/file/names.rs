//! Names of the files in a data directory.

/// Identity of the journal and of its last writer.
pub const IDENTITY: &str = "journal";
/// The process that writes; for operators only, because the lock is on the directory.
pub const PID: &str = "pid";
/// The next segment, filled with zeros.
pub const SPARE: &str = "spare";

/// Signed heads of the audit log.
pub const HEADS: &str = "audit-heads";

/// Exists while a restore is incomplete.
pub const RESTORING: &str = "restoring";

const SEGMENT: &str = "segment-";
const SNAPSHOT: &str = "snapshot-";
const AUDIT: &str = "trail-";
const DRAFT: &str = ".tmp";
const DIGITS: usize = 20;

/// Kind of a file, by its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A segment, by number.
    Segment(u64),
    /// A snapshot, by sequence.
    Snapshot(u64),
    /// A file of the audit log, by number.
    Audit(u64),
    /// Signed heads of the audit log.
    Heads,
    /// The identity.
    Identity,
    /// The next segment.
    Spare,
    /// The marker of an incomplete restore.
    Restoring,
    /// A file that was not completed.
    Draft,
    /// It has a known prefix but an invalid number.
    Misnamed,
    /// Not a file of the journal.
    Other,
}

/// Name of a segment.
pub fn segment(number: u64) -> String {
    format!("{SEGMENT}{number:0DIGITS$}")
}

/// Name of a snapshot.
pub fn snapshot(sequence: u64) -> String {
    format!("{SNAPSHOT}{sequence:0DIGITS$}")
}

/// Name of a file of the audit log.
pub fn audit(number: u64) -> String {
    format!("{AUDIT}{number:0DIGITS$}")
}

/// Name of a file until it is complete.
pub fn draft(name: &str) -> String {
    format!("{name}{DRAFT}")
}

/// Classifies a file by its name.
pub fn kind(name: &str) -> FileKind {
    let number = |digits: &str| match digits.parse() {
        Ok(number) if digits.len() == DIGITS && digits.bytes().all(|byte| byte.is_ascii_digit()) => Some(number),
        _ => None,
    };
    if let Some(stem) = name.strip_suffix(DRAFT) {
        return if matches!(kind(stem), FileKind::Other | FileKind::Misnamed | FileKind::Draft) {
            FileKind::Other
        } else {
            FileKind::Draft
        };
    }
    if let Some(digits) = name.strip_prefix(SEGMENT) {
        return number(digits).map_or(FileKind::Misnamed, FileKind::Segment);
    }
    if let Some(digits) = name.strip_prefix(SNAPSHOT) {
        return number(digits).map_or(FileKind::Misnamed, FileKind::Snapshot);
    }
    if let Some(digits) = name.strip_prefix(AUDIT) {
        // Nothing is recovered from these files, so an invalid number is harmless.
        return number(digits).map_or(FileKind::Other, FileKind::Audit);
    }
    match name {
        HEADS => FileKind::Heads,
        IDENTITY => FileKind::Identity,
        SPARE => FileKind::Spare,
        RESTORING => FileKind::Restoring,
        _ => FileKind::Other,
    }
}
