//! Walking through one part of the trail, from its beginning to its end or to the first place that is broken.

use super::frame::{self, Frame, Part};
use super::{Hash, link};
use crate::journal::{NotTold, Rack};

/// An entry where it lies.
#[derive(Clone, Copy, Debug)]
pub struct Found<'a> {
    /// Its number.
    pub entry: u64,
    /// What entries about one resource are found by.
    pub key: [u8; 8],
    /// Its text.
    pub text: &'a [u8],
    /// Its hash.
    pub hash: Hash,
}

/// How far a part is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Walked {
    /// What it says about itself.
    pub part: Part,
    /// The salt of its frames.
    pub salt: u32,
    /// The number of the entry that comes next, and the hash it follows on.
    pub next: u64,
    /// The hash of the last entry.
    pub hash: Hash,
    /// A mark that nothing follows: everything up to its position is told.
    pub mark: Option<(u64, Hash)>,
    /// Where it is over, or broken.
    pub at: usize,
    /// What is wrong there.
    pub wrong: Option<&'static str>,
}

/// Walks through the bytes of a part; `each` hears of every good entry. Without `prove` only checksums are looked at.
pub fn walk(bytes: &[u8], prove: bool, mut each: impl FnMut(Found<'_>)) -> Result<Walked, &'static str> {
    let (part, salt) = Part::decode(bytes)?;
    let mut walked =
        Walked { part, salt, next: part.first, hash: part.before, mark: None, at: frame::HEADER, wrong: None };
    loop {
        match frame::look(salt, bytes, walked.at) {
            Frame::End => return Ok(walked),
            Frame::Broken(why) => return Ok(Walked { wrong: Some(why), ..walked }),
            Frame::Mark { position, batch, end } => {
                walked.mark = Some((position, batch));
                walked.at = end;
            }
            Frame::Entry { key, text, hash, end } => {
                if prove && hash != link(&walked.hash, text) {
                    return Ok(Walked { wrong: Some("an entry's hash does not follow on the one before"), ..walked });
                }
                each(Found { entry: walked.next, key, text, hash });
                walked = Walked { next: walked.next + 1, hash, mark: None, at: end, ..walked };
            }
        }
    }
}

/// Reads a whole part. What is allocated is what the file has.
pub(super) fn read(rack: &dyn Rack, number: u64, length: u64, into: &mut Vec<u8>) -> Result<(), NotTold> {
    let length = usize::try_from(length).map_err(|_| NotTold::Unreadable { why: rack.label(number) })?;
    into.clear();
    into.resize(length, 0);
    let got = rack.read(number, 0, into)?;
    into.truncate(got);
    Ok(())
}
