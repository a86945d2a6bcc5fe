//! The few primitives that every stored byte is made of. Records and snapshots are written with nothing else.

use std::fmt;

/// Bytes that are not what they claim to be. Decoders answer it; they never panic and never allocate by a claimed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// Where in the bytes, counted from their start.
    pub at: usize,
    /// What is wrong there.
    pub why: &'static str,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.why, self.at)
    }
}

impl std::error::Error for Malformed {}

/// Appends primitives to a buffer.
pub trait Write {
    /// One byte.
    fn u8(&mut self, v: u8);
    /// A number, seven bits a byte, least significant first, in its shortest form.
    fn num(&mut self, v: u64);
    /// A number in eight bytes, little-endian.
    fn fixed(&mut self, v: u64);
    /// Bytes as they are.
    fn raw(&mut self, v: &[u8]);

    /// Bytes behind their length.
    fn bytes(&mut self, v: &[u8]) {
        self.num(v.len() as u64);
        self.raw(v);
    }
    /// Text behind its length.
    fn text(&mut self, v: &str) {
        self.bytes(v.as_bytes());
    }
    /// A flag in one byte.
    fn flag(&mut self, v: bool) {
        self.u8(u8::from(v));
    }
    /// A number that may be absent: a flag, then the number.
    fn maybe(&mut self, v: Option<u64>) {
        self.flag(v.is_some());
        if let Some(v) = v {
            self.num(v);
        }
    }
}

impl Write for Vec<u8> {
    fn u8(&mut self, v: u8) {
        self.push(v);
    }
    fn num(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.push(v as u8);
    }
    fn fixed(&mut self, v: u64) {
        self.extend_from_slice(&v.to_le_bytes());
    }
    fn raw(&mut self, v: &[u8]) {
        self.extend_from_slice(v);
    }
}

/// Takes primitives off the front of bytes, in the order they were written.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads from the start of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// How far it has read.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// How many bytes are left.
    pub const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// A complaint about this place.
    pub const fn wrong(&self, why: &'static str) -> Malformed {
        Malformed { at: self.at, why }
    }

    /// Refuses trailing bytes.
    pub fn finish(self) -> Result<(), Malformed> {
        if self.is_empty() { Ok(()) } else { Err(self.wrong("bytes after the end")) }
    }

    /// So many bytes as they are.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.wrong("cut short"));
        };
        let out = &self.bytes[self.at..end];
        self.at = end;
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, Malformed> {
        match self.bytes.get(self.at) {
            Some(b) => {
                self.at += 1;
                Ok(*b)
            }
            None => Err(self.wrong("cut short")),
        }
    }

    /// A number in its shortest form; a longer spelling of the same number is refused, so that one state has one encoding.
    pub fn num(&mut self) -> Result<u64, Malformed> {
        let mut v = 0u64;
        for i in 0..10 {
            let b = self.u8()?;
            let low = u64::from(b & 0x7f);
            if i == 9 && b > 1 {
                return Err(self.wrong("number too large"));
            }
            v |= low << (7 * i);
            if b & 0x80 == 0 {
                if b == 0 && i > 0 {
                    return Err(self.wrong("number not in its shortest form"));
                }
                return Ok(v);
            }
        }
        Err(self.wrong("number too large"))
    }

    /// A number that must fit 32 bits.
    pub fn num32(&mut self) -> Result<u32, Malformed> {
        u32::try_from(self.num()?).map_err(|_| self.wrong("number above 32 bits"))
    }

    /// A number in eight bytes.
    pub fn fixed(&mut self) -> Result<u64, Malformed> {
        let raw = self.raw(8)?;
        Ok(u64::from_le_bytes(raw.try_into().expect("eight bytes")))
    }

    /// An array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        Ok(self.raw(N)?.try_into().expect("as long as asked"))
    }

    /// Bytes behind their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let n = self.num()?;
        let n = usize::try_from(n).map_err(|_| self.wrong("length too large"))?;
        self.raw(n)
    }

    /// Text behind its length.
    pub fn text(&mut self) -> Result<&'a str, Malformed> {
        let at = self.at;
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed { at, why: "not UTF-8" })
    }

    /// A flag.
    pub fn flag(&mut self) -> Result<bool, Malformed> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("neither true nor false")),
        }
    }

    /// A number that may be absent.
    pub fn maybe(&mut self) -> Result<Option<u64>, Malformed> {
        Ok(if self.flag()? { Some(self.num()?) } else { None })
    }
}
