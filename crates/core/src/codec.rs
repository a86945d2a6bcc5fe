//! Binary encoding primitives. All records and snapshots are written with these alone.

use std::fmt;

/// Malformed bytes. Decoders return this error; they never panic and never allocate by a claimed length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecodeError {
    /// Byte offset of the problem.
    pub at: usize,
    /// What is wrong.
    pub problem: &'static str,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.problem, self.at)
    }
}

impl std::error::Error for DecodeError {}

/// Appends primitives to a buffer.
pub trait Write {
    /// One byte.
    fn u8(&mut self, v: u8);
    /// A number as LEB128: seven bits per byte, least significant first, in its shortest form.
    fn num(&mut self, v: u64);
    /// A number in eight bytes, little-endian.
    fn fixed(&mut self, v: u64);
    /// Bytes without a length.
    fn raw(&mut self, v: &[u8]);

    /// Bytes, prefixed with their length.
    fn bytes(&mut self, v: &[u8]) {
        self.num(v.len() as u64);
        self.raw(v);
    }
    /// Text, prefixed with its length.
    fn text(&mut self, v: &str) {
        self.bytes(v.as_bytes());
    }
    /// A flag in one byte.
    fn flag(&mut self, v: bool) {
        self.u8(u8::from(v));
    }
    /// An optional number: a flag, then the number.
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

/// Reads primitives in the order they were written.
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

    /// Bytes read so far.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub const fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// Whether everything was read.
    pub const fn is_empty(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// An error at the current position.
    pub const fn wrong(&self, problem: &'static str) -> DecodeError {
        DecodeError { at: self.at, problem }
    }

    /// Ends the input; trailing bytes are an error.
    pub fn finish(self) -> Result<(), DecodeError> {
        if self.is_empty() { Ok(()) } else { Err(self.wrong("bytes after the end")) }
    }

    /// The next `n` bytes.
    pub fn raw(&mut self, n: usize) -> Result<&'a [u8], DecodeError> {
        let end = self.at.checked_add(n).filter(|end| *end <= self.bytes.len());
        let Some(end) = end else {
            return Err(self.wrong("cut short"));
        };
        let out = &self.bytes[self.at..end];
        self.at = end;
        Ok(out)
    }

    /// One byte.
    pub fn u8(&mut self) -> Result<u8, DecodeError> {
        match self.bytes.get(self.at) {
            Some(b) => {
                self.at += 1;
                Ok(*b)
            }
            None => Err(self.wrong("cut short")),
        }
    }

    /// A number in its shortest form. A longer encoding of the same number is an error, so that each state has one encoding.
    pub fn num(&mut self) -> Result<u64, DecodeError> {
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

    /// A number that must fit into 32 bits.
    pub fn num32(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.num()?).map_err(|_| self.wrong("number above 32 bits"))
    }

    /// A number in eight bytes.
    pub fn fixed(&mut self) -> Result<u64, DecodeError> {
        let raw = self.raw(8)?;
        Ok(u64::from_le_bytes(raw.try_into().expect("eight bytes")))
    }

    /// An array of bytes.
    pub fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        Ok(self.raw(N)?.try_into().expect("raw returned N bytes"))
    }

    /// Bytes, prefixed with their length.
    pub fn bytes(&mut self) -> Result<&'a [u8], DecodeError> {
        let n = self.num()?;
        let n = usize::try_from(n).map_err(|_| self.wrong("length too large"))?;
        self.raw(n)
    }

    /// Text, prefixed with its length.
    pub fn text(&mut self) -> Result<&'a str, DecodeError> {
        let at = self.at;
        std::str::from_utf8(self.bytes()?).map_err(|_| DecodeError { at, problem: "not UTF-8" })
    }

    /// A flag.
    pub fn flag(&mut self) -> Result<bool, DecodeError> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(self.wrong("neither true nor false")),
        }
    }

    /// An optional number.
    pub fn maybe(&mut self) -> Result<Option<u64>, DecodeError> {
        Ok(if self.flag()? { Some(self.num()?) } else { None })
    }
}
