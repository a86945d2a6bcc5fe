//! Fencing tokens: the number that orders all grants, the token text that a holder presents, and its checks.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::mutants::{self, Mutant};
use crate::name::{Name, resource_hash};
use crate::time::WallClock;

/// Numbers available per millisecond of the wall clock, as a power of two.
const NUMBERS_PER_MILLI: u32 = 22;
/// How far a number may be ahead of a target's clock, in milliseconds: one day.
const AHEAD: u64 = 24 * 3_600_000;
/// Version of the plain text form, after the leading `lh`.
const PLAIN: &str = "1";
/// Version of the sealed text form.
const SEALED: &str = "2";
/// Bytes of a text before its checksum or its seal, the same in both versions.
const BODY_BYTES: usize = 76;

/// The length of a plain token text, in bytes.
pub const TOKEN_BYTES: usize = 85;
/// The length of a sealed token text, in bytes.
pub const SEALED_TOKEN_BYTES: usize = 172;

/// A token number, from 1 to below 2^63, so that it fits a signed 64-bit column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(NonZeroU64);

impl Number {
    /// The lowest number.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// The highest number; nothing is granted after it.
    pub const MAX: Self = Self(NonZeroU64::new((1 << 63) - 1).expect("2^63 - 1 is not zero"));

    /// The number, if it is neither zero nor 2^63 or more.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::MAX.get() => Some(Self(number)),
            _ => None,
        }
    }

    /// The plain value.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The number after `counter`, raised to the wall clock so that a machine that was rolled back does not issue a number
/// twice (T4). `None` if there is none below 2^63: then nothing is granted, and nothing wraps around (T7).
pub const fn next_number(counter: u64, wall: WallClock) -> Option<Number> {
    let next = counter.saturating_add(1);
    let clock = numbers_until(wall.since_era());
    Number::new(if next > clock { next } else { clock })
}

/// The wall clock when a number was issued, to the millisecond. A number that was raised above the clock, for
/// example after a rollback, says a later time.
pub const fn issued_at(number: Number) -> WallClock {
    WallClock::after_era(number.get() >> NUMBERS_PER_MILLI)
}

/// Whether `number` is plausible at a fence whose clock is `wall`: at most one day ahead (F5). An implausible number
/// must not become the mark, or one typing error would refuse every later holder.
pub fn plausible(number: Number, wall: WallClock) -> bool {
    mutants::on(Mutant::PlausibilityNotChecked) || number.get() <= plausible_max(wall)
}

/// The highest plausible number at wall clock `wall`.
pub const fn plausible_max(wall: WallClock) -> u64 {
    numbers_until(wall.since_era().saturating_add(AHEAD))
}

const fn numbers_until(ms: u64) -> u64 {
    ms.saturating_mul(1 << NUMBERS_PER_MILLI)
}

/// The cluster that issued a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cluster(pub [u8; 8]);

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl FromStr for Cluster {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, ParseHexError> {
        hex(text, 16).map(|v| Self(v.to_be_bytes())).ok_or(ParseHexError { digits: 16 })
    }
}

/// The incarnation of the cluster that issued a token. Every restore starts a new one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for Incarnation {
    type Err = ParseHexError;

    fn from_str(text: &str) -> Result<Self, ParseHexError> {
        hex32(text).map(Self).ok_or(ParseHexError { digits: 8 })
    }
}

/// Text that is not the required number of lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseHexError {
    /// Required number of digits.
    pub digits: usize,
}

impl fmt::Display for ParseHexError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "must be {} lower-case hexadecimal digits; copy the printed text", self.digits)
    }
}

impl std::error::Error for ParseHexError {}

/// What a token allows at its resource.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TokenScope {
    /// Writes to one slot; an exclusive lease has slot 0.
    Slot(u32),
    /// Reads, together with other readers.
    Shared,
    /// A reservation of units, which have no slot.
    Units,
}

impl fmt::Display for TokenScope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Slot(slot) => write!(f, "w{slot:08x}"),
            Self::Shared => f.write_str("r00000000"),
            Self::Units => f.write_str("u00000000"),
        }
    }
}

/// A fencing token, which a holder presents with every write.
///
/// Its text has one spelling and fixed positions, so that SQL and Lua can read it with `substr` (counted from 1):
///
/// | from | length | content |
/// |---|---|---|
/// | 1 | 4 | `lh1-`: the version |
/// | 5 | 16 | the cluster, hexadecimal |
/// | 22 | 8 | the incarnation, hexadecimal |
/// | 31 | 16 | the resource's hash, hexadecimal |
/// | 48 | 9 | the scope: `w` and the slot in hexadecimal, or `r00000000`, or `u00000000` |
/// | 58 | 19 | the number, decimal with leading zeros: tokens of one target also sort as text |
/// | 78 | 8 | CRC-32 of the 76 bytes before its dash, hexadecimal |
///
/// The checksum detects mistakes, not forgery. A sealed text starts with `lh2-`, has the same positions up to 76, and then
/// the id of a key and a signature instead of the checksum. The core reads it and verifies nothing: the crate
/// `leasehold-seal` does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// The cluster that issued it.
    pub cluster: Cluster,
    /// The incarnation of that cluster.
    pub incarnation: Incarnation,
    /// Hash of the resource name.
    pub resource: [u8; 8],
    /// What it allows at the resource.
    pub scope: TokenScope,
    /// Its position in the order of all grants.
    pub number: Number,
}

impl Token {
    /// Parses a token text strictly: a text that no `Token` prints is refused, never corrected. The signature of a sealed
    /// text must have the right shape; it is not verified.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if text.is_empty() {
            return Err(TokenError::Absent);
        }
        let sealed = is_sealed_version(text)?;
        let (body, end) = if sealed {
            text.split_at_checked(BODY_BYTES).ok_or(TokenError::Shape)?
        } else {
            text.rsplit_once('-').ok_or(TokenError::Shape)?
        };
        let mut fields = body.split('-').skip(1);
        let mut field = || fields.next().ok_or(TokenError::Shape);
        let cluster = field()?.parse().map_err(|_| TokenError::Shape)?;
        let incarnation = field()?.parse().map_err(|_| TokenError::Shape)?;
        let resource = hex(field()?, 16).ok_or(TokenError::Shape)?.to_be_bytes();
        let scope = scope_of(field()?).ok_or(TokenError::Shape)?;
        let number = decimal(field()?).ok_or(TokenError::Shape)?;
        if fields.next().is_some() {
            return Err(TokenError::Shape);
        }
        if sealed {
            seal_shape(end).ok_or(TokenError::Shape)?;
        } else if hex32(end).ok_or(TokenError::Shape)? != crc32fast::hash(body.as_bytes()) {
            return Err(TokenError::Checksum);
        }
        if number == 0 {
            return Err(TokenError::Zero);
        }
        let number = Number::new(number).ok_or(TokenError::TooLarge)?;
        Ok(Self { cluster, incarnation, resource, scope, number })
    }

    /// The first 76 bytes of its sealed text: what a seal signs, together with the id of the key and the resource's name.
    pub fn sealed_body(&self) -> String {
        self.body(SEALED)
    }

    fn body(&self, version: &str) -> String {
        let Self { cluster, incarnation, resource, scope, number } = self;
        let resource = u64::from_be_bytes(*resource);
        format!("lh{version}-{cluster}-{incarnation}-{resource:016x}-{scope}-{number:019}")
    }

    /// The number to compare with the mark of a fence. A fence calls this and never reads the field, so that it does not
    /// compare the number of a token that is meant for another target (T6, F4).
    pub fn for_target(&self, key: &FenceKey) -> Result<Number, TokenError> {
        if self.cluster != key.cluster && !mutants::on(Mutant::ClusterNotCompared) {
            return Err(TokenError::WrongCluster);
        }
        if self.resource != key.resource && !mutants::on(Mutant::ResourceNotCompared) {
            return Err(TokenError::Resource);
        }
        match (self.scope, key.access) {
            (TokenScope::Slot(slot), _) if slot != key.slot => Err(TokenError::Slot),
            (TokenScope::Shared | TokenScope::Units, FenceAccess::Write) => Err(TokenError::Shared),
            (TokenScope::Slot(_), _) | (TokenScope::Shared | TokenScope::Units, FenceAccess::Read) => Ok(self.number),
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let body = self.body(PLAIN);
        write!(f, "{body}-{:08x}", crc32fast::hash(body.as_bytes()))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        Self::parse(text)
    }
}

/// What a fence guards: one slot of a resource of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FenceKey {
    /// The cluster whose tokens it accepts.
    pub cluster: Cluster,
    /// Hash of the resource name.
    pub resource: [u8; 8],
    /// The slot; 0 for an exclusive lease.
    pub slot: u32,
    /// The operations that it guards.
    pub access: FenceAccess,
}

impl FenceKey {
    /// A key that guards writes to this slot of the resource.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        Self { cluster, resource: resource_hash(resource.as_str()), slot, access: FenceAccess::Write }
    }

    /// The same key for reads: tokens of readers pass too.
    pub const fn for_reads(self) -> Self {
        Self { access: FenceAccess::Read, ..self }
    }
}

/// The kind of operation that a fence guards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FenceAccess {
    /// Writes: only the holder of the slot passes.
    Write,
    /// Reads: readers pass too.
    Read,
}

/// Why a token is refused before its number is compared with a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// No token was presented. That is a refusal, never a way past the fence.
    Absent,
    /// An unsupported version.
    Version {
        /// The presented version.
        have: u32,
    },
    /// Not a token text.
    Shape,
    /// The text was altered.
    Checksum,
    /// Number zero.
    Zero,
    /// A number of 2^63 or more.
    TooLarge,
    /// An implausible number; see [`plausible`].
    Implausible,
    /// A token of another cluster.
    WrongCluster,
    /// A token of another resource.
    Resource,
    /// A reader's or a reservation's token, at a fence for writes.
    Shared,
    /// A token of another slot.
    Slot,
}

impl TokenError {
    /// The stable error code.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Version { .. } => "UNSUPPORTED_VERSION",
            Self::Implausible => "TOKEN_IMPLAUSIBLE",
            Self::WrongCluster => "WRONG_CLUSTER",
            _ => "TOKEN_INVALID",
        }
    }

    /// The stable word that refines the code.
    pub const fn reason(&self) -> &'static str {
        match self {
            Self::Absent => "absent",
            Self::Version { .. } => "version",
            Self::Shape => "shape",
            Self::Checksum => "checksum",
            Self::Zero => "zero",
            Self::TooLarge => "too_large",
            Self::Implausible => "implausible",
            Self::WrongCluster => "cluster",
            Self::Resource => "resource",
            Self::Shared => "shared",
            Self::Slot => "slot",
        }
    }
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Version { have } => {
                return write!(
                    f,
                    "token version {have} is not supported (expected {PLAIN} or {SEALED}); update the fence"
                );
            }
            Self::Absent => "no token; acquire the lease and present its token with every write",
            Self::Shape => "not a token; pass the token text of the grant unchanged",
            Self::Checksum => "token checksum does not match; copy the token text of the grant again",
            Self::Zero => "token number 0 is never granted; acquire the lease and present its token",
            Self::TooLarge => "token number is not below 2^63; acquire the lease and present its token",
            Self::Implausible => {
                "token number is more than a day ahead of this target's clock; compare its clock with the server's"
            }
            Self::WrongCluster => "token of another cluster; acquire the lease from the cluster of this target",
            Self::Resource => "token of another resource; acquire the resource that guards this target",
            Self::Shared => {
                "a reader's or a reservation's token cannot write; acquire the lease exclusively, or a slot"
            }
            Self::Slot => "token of another slot; write to the slot that was granted",
        })
    }
}

impl std::error::Error for TokenError {}

fn is_sealed_version(text: &str) -> Result<bool, TokenError> {
    let (have, _) = text.strip_prefix("lh").and_then(|rest| rest.split_once('-')).ok_or(TokenError::Shape)?;
    match have {
        PLAIN => Ok(false),
        SEALED => Ok(true),
        _ => match have.parse::<u32>() {
            Ok(number) if number.to_string() == have => Err(TokenError::Version { have: number }),
            _ => Err(TokenError::Shape),
        },
    }
}

/// Whether `text` is the end of a sealed text: `-`, the key's id, `-` and 64 bytes in base64url without padding.
fn seal_shape(text: &str) -> Option<()> {
    let (kid, signature) = text.strip_prefix('-')?.split_once('-')?;
    hex32(kid)?;
    let is_base64url = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    // The last character has four bits to spare, which must be zero, so that one signature has one spelling.
    let is_canonical = signature.ends_with(['A', 'Q', 'g', 'w']);
    (signature.len() == 86 && signature.bytes().all(is_base64url) && is_canonical).then_some(())
}

fn scope_of(text: &str) -> Option<TokenScope> {
    let (letter, slot) = text.split_at_checked(1)?;
    match (letter, hex32(slot)?) {
        ("w", slot) => Some(TokenScope::Slot(slot)),
        ("r", 0) => Some(TokenScope::Shared),
        ("u", 0) => Some(TokenScope::Units),
        _ => None,
    }
}

fn decimal(text: &str) -> Option<u64> {
    let plain = text.len() == 19 && text.bytes().all(|b| b.is_ascii_digit());
    if plain { text.parse().ok() } else { None }
}

fn hex32(text: &str) -> Option<u32> {
    hex(text, 8).and_then(|v| u32::try_from(v).ok())
}

fn hex(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if plain { u64::from_str_radix(text, 16).ok() } else { None }
}
