//! The place of a grant in the one order of all grants, and the one text in which a holder shows it to a fence.

use std::fmt;
use std::num::NonZeroU64;
use std::str::FromStr;

use crate::mutants::{self, Mutant};
use crate::name::{Name, resource_hash};
use crate::time::Wall;

/// How many numbers one millisecond of the wall clock has room for, as a power of two.
const NUMBERS_PER_MILLI: u32 = 22;
/// How far ahead of a target's clock a number may be, in milliseconds: one day.
const AHEAD: u64 = 24 * 3_600_000;
/// The version that this text form carries behind its `lh`.
const VERSION: &str = "1";

/// The length of every token text, in bytes.
pub const TOKEN_BYTES: usize = 85;

/// A token's number, from 1 to below 2^63, so that a signed 64-bit column holds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(NonZeroU64);

impl Number {
    /// The lowest number.
    pub const FIRST: Self = Self(NonZeroU64::MIN);
    /// The highest number; after it nothing is granted.
    pub const MAX: Self = Self(NonZeroU64::new((1 << 63) - 1).expect("2^63 - 1 is not zero"));

    /// The number, if it is one: not zero and below 2^63.
    pub const fn new(number: u64) -> Option<Self> {
        match NonZeroU64::new(number) {
            Some(number) if number.get() <= Self::MAX.get() => Some(Self(number)),
            _ => None,
        }
    }

    /// The number itself.
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.get().fmt(f)
    }
}

/// The number after `counter`, lifted to the wall clock so that a machine rolled back behind our back does not issue a
/// number twice (T4). `None` when there is none below 2^63: then nothing is granted, and nothing wraps (T7).
pub const fn lift(counter: u64, wall: Wall) -> Option<Number> {
    let next = counter.saturating_add(1);
    let clock = numbers_until(wall.since_era());
    Number::new(if next > clock { next } else { clock })
}

/// Whether a fence whose clock shows `wall` may believe `number`: at most one day ahead (F5). An unbelievable number
/// must not reach the mark, or one typing error would refuse every later holder.
pub fn plausible(number: Number, wall: Wall) -> bool {
    mutants::on(Mutant::AnythingPlausible) || number.get() <= believed(wall)
}

/// The highest number that is believed when the clock shows `wall`.
pub const fn believed(wall: Wall) -> u64 {
    numbers_until(wall.since_era().saturating_add(AHEAD))
}

const fn numbers_until(ms: u64) -> u64 {
    ms.saturating_mul(1 << NUMBERS_PER_MILLI)
}

/// Which cluster issued a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cluster(pub [u8; 8]);

impl fmt::Display for Cluster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

impl FromStr for Cluster {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Self, NotHex> {
        hex(text, 16).map(|v| Self(v.to_be_bytes())).ok_or(NotHex { digits: 16 })
    }
}

/// Which life of its cluster issued a token: a new one with every restore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", self.0)
    }
}

impl FromStr for Incarnation {
    type Err = NotHex;

    fn from_str(text: &str) -> Result<Self, NotHex> {
        hex32(text).map(Self).ok_or(NotHex { digits: 8 })
    }
}

/// Text that is not so many lower-case hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotHex {
    /// How many digits it must have.
    pub digits: usize,
}

impl fmt::Display for NotHex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "not {} hexadecimal digits in lower case; copy it as it was printed", self.digits)
    }
}

impl std::error::Error for NotHex {}

/// How far into its resource a token reaches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Reach {
    /// Writes at one slot; an exclusive lease has slot 0.
    Slot(u32),
    /// Reads beside other readers.
    Shared,
    /// Counts as some units of a capacity, none of them by name.
    Units,
}

impl fmt::Display for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Slot(slot) => write!(f, "w{slot:08x}"),
            Self::Shared => f.write_str("r00000000"),
            Self::Units => f.write_str("u00000000"),
        }
    }
}

/// What a holder shows with every write.
///
/// Its text has one spelling and fixed places, so that SQL and Lua can cut it with `substr` (counted from 1):
///
/// | from | length | holds |
/// |---|---|---|
/// | 1 | 4 | `lh1-`: the version |
/// | 5 | 16 | the cluster, hexadecimal |
/// | 22 | 8 | the incarnation, hexadecimal |
/// | 31 | 16 | the resource's hash, hexadecimal |
/// | 48 | 9 | the reach: `w` and the slot in hexadecimal, or `r00000000`, or `u00000000` |
/// | 58 | 19 | the number, decimal, zeros in front: tokens of one target order as text too |
/// | 78 | 8 | CRC-32 of the 76 bytes before its dash, hexadecimal |
///
/// The checksum catches mistakes, not lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    /// Who issued it.
    pub cluster: Cluster,
    /// In which life.
    pub incarnation: Incarnation,
    /// The resource's hash.
    pub resource: [u8; 8],
    /// What it reaches there.
    pub reach: Reach,
    /// Its place among all grants.
    pub number: Number,
}

impl Token {
    /// Reads a token's text. Strict: what was not printed by a `Token` is refused, never mended.
    pub fn parse(text: &str) -> Result<Self, TokenError> {
        if text.is_empty() {
            return Err(TokenError::Absent);
        }
        version(text)?;
        let (body, checksum) = text.rsplit_once('-').ok_or(TokenError::Shape)?;
        let mut fields = body.split('-').skip(1);
        let mut field = || fields.next().ok_or(TokenError::Shape);
        let cluster = field()?.parse().map_err(|_| TokenError::Shape)?;
        let incarnation = field()?.parse().map_err(|_| TokenError::Shape)?;
        let resource = hex(field()?, 16).ok_or(TokenError::Shape)?.to_be_bytes();
        let reach = reach_of(field()?).ok_or(TokenError::Shape)?;
        let number = decimal(field()?).ok_or(TokenError::Shape)?;
        let checksum = hex32(checksum).ok_or(TokenError::Shape)?;
        if fields.next().is_some() {
            return Err(TokenError::Shape);
        }
        if checksum != crc32fast::hash(body.as_bytes()) {
            return Err(TokenError::Checksum);
        }
        if number == 0 {
            return Err(TokenError::Zero);
        }
        let number = Number::new(number).ok_or(TokenError::TooLarge)?;
        Ok(Self { cluster, incarnation, resource, reach, number })
    }

    /// The number to compare with the mark of what is guarded. A fence takes it from here and never from the field, so
    /// that it does not compare the number of a token that was meant for something else (T6, F4).
    pub fn for_target(&self, guarded: &Guarded) -> Result<Number, TokenError> {
        if self.cluster != guarded.cluster && !mutants::on(Mutant::ClusterNotCompared) {
            return Err(TokenError::WrongCluster);
        }
        if self.resource != guarded.resource && !mutants::on(Mutant::ResourceNotCompared) {
            return Err(TokenError::Resource);
        }
        match (self.reach, guarded.access) {
            (Reach::Slot(slot), _) if slot != guarded.slot => Err(TokenError::Slot),
            (Reach::Shared | Reach::Units, Access::Write) => Err(TokenError::Shared),
            (Reach::Slot(_), _) | (Reach::Shared | Reach::Units, Access::Read) => Ok(self.number),
        }
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, incarnation, resource, reach, number } = self;
        let resource = u64::from_be_bytes(*resource);
        let body = format!("lh{VERSION}-{cluster}-{incarnation}-{resource:016x}-{reach}-{number:019}");
        write!(f, "{body}-{:08x}", crc32fast::hash(body.as_bytes()))
    }
}

impl FromStr for Token {
    type Err = TokenError;

    fn from_str(text: &str) -> Result<Self, TokenError> {
        Self::parse(text)
    }
}

/// What a fence stands before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Guarded {
    /// Whose tokens it takes.
    pub cluster: Cluster,
    /// The resource's hash.
    pub resource: [u8; 8],
    /// Which slot; 0 under an exclusive lease.
    pub slot: u32,
    /// What is done there.
    pub access: Access,
}

impl Guarded {
    /// Guards writes under this resource's slot.
    pub fn new(cluster: Cluster, resource: Name<'_>, slot: u32) -> Self {
        Self { cluster, resource: resource_hash(resource.as_str()), slot, access: Access::Write }
    }

    /// The same, for reads only: readers may pass too.
    pub const fn for_reads(self) -> Self {
        Self { access: Access::Read, ..self }
    }
}

/// What is done behind a fence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Something changes: one slot's holder only.
    Write,
    /// Nothing changes: readers too.
    Read,
}

/// Why a token is refused before its number is compared with any mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// None was shown; that is a refusal, never a way past the fence.
    Absent,
    /// A version this code does not read.
    Version {
        /// The version shown.
        have: u32,
    },
    /// Not a token's text.
    Shape,
    /// Changed since it was printed.
    Checksum,
    /// Number zero.
    Zero,
    /// A number of 2^63 or more.
    TooLarge,
    /// A number that a fence's clock does not believe; see [`plausible`].
    Implausible,
    /// Another cluster's.
    WrongCluster,
    /// Another resource's.
    Resource,
    /// A reader's or a reservation's, at a fence for writes.
    Shared,
    /// Another slot's.
    Slot,
}

impl TokenError {
    /// The stable code of this refusal.
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Version { .. } => "UNSUPPORTED_VERSION",
            Self::Implausible => "TOKEN_IMPLAUSIBLE",
            Self::WrongCluster => "WRONG_CLUSTER",
            _ => "TOKEN_INVALID",
        }
    }

    /// The stable word beside the code.
    pub const fn why(&self) -> &'static str {
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
                return write!(f, "token version {have} where {VERSION} is read; update whoever checks it");
            }
            Self::Absent => "no token; acquire the lease and show its token with every write",
            Self::Shape => "not a token; pass the text of the grant on, unchanged and whole",
            Self::Checksum => "token changed since it was printed; copy the text of the grant again",
            Self::Zero => "token number 0 is never granted; acquire the lease and show its token",
            Self::TooLarge => "token number is not below 2^63; acquire the lease and show its token",
            Self::Implausible => {
                "token number is over a day ahead of this target's clock; compare its clock with the server's"
            }
            Self::WrongCluster => "token of another cluster; acquire from the cluster this target names",
            Self::Resource => "token of another resource; acquire the resource that guards this target",
            Self::Shared => "a reader's or a reservation's token does not write; acquire exclusively, or one slot",
            Self::Slot => "token of another slot; write to the slot that was granted",
        })
    }
}

impl std::error::Error for TokenError {}

fn version(text: &str) -> Result<(), TokenError> {
    let (have, _) = text.strip_prefix("lh").and_then(|rest| rest.split_once('-')).ok_or(TokenError::Shape)?;
    if have == VERSION {
        return Ok(());
    }
    match have.parse::<u32>() {
        Ok(number) if number.to_string() == have => Err(TokenError::Version { have: number }),
        _ => Err(TokenError::Shape),
    }
}

fn reach_of(text: &str) -> Option<Reach> {
    let (letter, slot) = text.split_at_checked(1)?;
    match (letter, hex32(slot)?) {
        ("w", slot) => Some(Reach::Slot(slot)),
        ("r", 0) => Some(Reach::Shared),
        ("u", 0) => Some(Reach::Units),
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
