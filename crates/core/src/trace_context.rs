//! Trace context: which operation of a distributed trace caused a request, as the header `traceparent` names it (W3C Trace Context).

use std::fmt;

use crate::codec::{DecodeError, Reader, Write};

/// The operation that caused a request: its trace, its span, and whether the trace is sampled. It decides nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TraceContext {
    trace_id: [u8; 16],
    parent_id: [u8; 8],
    flags: u8,
}

/// The trace is recorded by its caller.
const SAMPLED: u8 = 0x01;
/// The trace id is random.
const RANDOM: u8 = 0x02;
/// Length of a `traceparent` of version 00.
const TEXT_BYTES: usize = 55;

impl TraceContext {
    /// A trace context; `None` if one of its ids is zero, which means that there is none. Flags without a meaning are dropped.
    pub fn new(trace_id: [u8; 16], parent_id: [u8; 8], flags: u8) -> Option<Self> {
        let is_valid = trace_id != [0; 16] && parent_id != [0; 8];
        is_valid.then_some(Self { trace_id, parent_id, flags: flags & (SAMPLED | RANDOM) })
    }

    /// Parses a `traceparent`. `None` if it is invalid: the specification requires to ignore it then, not to refuse the request. Of a
    /// version after 00 it reads what version 00 has.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = text.as_bytes();
        let (head, rest) = bytes.split_at_checked(TEXT_BYTES)?;
        let [version] = hex(&head[..2])?;
        let is_separated = head[2] == b'-' && head[35] == b'-' && head[52] == b'-';
        let is_complete = match version {
            0 => rest.is_empty(),
            0xff => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        if !is_separated || !is_complete {
            return None;
        }
        let [flags] = hex(&head[53..])?;
        Self::new(hex(&head[3..35])?, hex(&head[36..52])?, flags)
    }

    /// The id of the trace.
    pub const fn trace_id(&self) -> [u8; 16] {
        self.trace_id
    }

    /// The id of the span that caused the request.
    pub const fn parent_id(&self) -> [u8; 8] {
        self.parent_id
    }

    /// Its flags, as in a `traceparent`.
    pub const fn flags(&self) -> u8 {
        self.flags
    }

    /// Whether its caller records the trace.
    pub const fn is_sampled(&self) -> bool {
        self.flags & SAMPLED != 0
    }

    pub(crate) fn encode(&self, out: &mut Vec<u8>) {
        out.raw(&self.trace_id);
        out.raw(&self.parent_id);
        out.u8(self.flags);
    }

    pub(crate) fn decode(from: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (trace_id, parent_id, flags) = (from.array()?, from.array()?, from.u8()?);
        Self::new(trace_id, parent_id, flags)
            .filter(|context| context.flags == flags)
            .ok_or_else(|| from.wrong("an invalid trace context"))
    }
}

/// As a `traceparent` of version 00.
impl fmt::Display for TraceContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (trace_id, parent_id) = (u128::from_be_bytes(self.trace_id), u64::from_be_bytes(self.parent_id));
        write!(f, "00-{trace_id:032x}-{parent_id:016x}-{:02x}", self.flags)
    }
}

/// Bytes from lower-case hexadecimal digits, the only ones that the specification allows.
fn hex<const N: usize>(digits: &[u8]) -> Option<[u8; N]> {
    let digit = |byte: u8| match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the specification.
    const EXAMPLE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_traceparent_is_parsed_and_printed_as_it_was() {
        let context = TraceContext::parse(EXAMPLE).expect("valid");
        assert_eq!(context.trace_id()[..4], [0x4b, 0xf9, 0x2f, 0x35]);
        assert_eq!(context.parent_id()[6..], [0x02, 0xb7]);
        assert!(context.is_sampled());
        assert_eq!(context.to_string(), EXAMPLE);
        let unsampled = TraceContext::parse(&EXAMPLE.replace("-01", "-00")).expect("valid");
        assert!(!unsampled.is_sampled());
    }

    #[test]
    fn flags_without_a_meaning_are_dropped() {
        let context = TraceContext::parse(&EXAMPLE.replace("-01", "-ff")).expect("valid");
        assert_eq!((context.flags(), context.is_sampled()), (3, true));
    }

    #[test]
    fn a_later_version_is_read_as_far_as_version_00_goes() {
        let known = TraceContext::parse(EXAMPLE);
        assert_eq!(TraceContext::parse(&EXAMPLE.replacen("00", "cc", 1)), known);
        assert_eq!(TraceContext::parse(&format!("{}-what-comes-later", EXAMPLE.replacen("00", "cc", 1))), known);
        assert_eq!(TraceContext::parse(&format!("{}.what", EXAMPLE.replacen("00", "cc", 1))), None);
    }

    #[test]
    fn an_invalid_traceparent_is_none() {
        let invalid = [
            String::new(),
            EXAMPLE.to_uppercase(),
            EXAMPLE.replacen("00", "ff", 1),
            EXAMPLE.replacen("00", "0g", 1),
            EXAMPLE[..54].to_owned(),
            format!("{EXAMPLE}-"),
            format!(" {EXAMPLE}"),
            EXAMPLE.replace('-', "_"),
            EXAMPLE.replace("4bf92f3577b34da6a3ce929d0e0e4736", "00000000000000000000000000000000"),
            EXAMPLE.replace("00f067aa0ba902b7", "0000000000000000"),
            EXAMPLE.replace("4bf9", "4bfé"),
            "é".repeat(40),
        ];
        for text in invalid {
            assert_eq!(TraceContext::parse(&text), None, "{text:?}");
        }
    }

    #[test]
    fn a_trace_context_decodes_as_written_and_nothing_else_decodes() {
        let context = TraceContext::parse(EXAMPLE).expect("valid");
        let mut bytes = Vec::new();
        context.encode(&mut bytes);
        assert_eq!(bytes.len(), 25);
        assert_eq!(TraceContext::decode(&mut Reader::new(&bytes)), Ok(context));
        for cut in 0..bytes.len() {
            assert!(TraceContext::decode(&mut Reader::new(&bytes[..cut])).is_err(), "cut at {cut}");
        }
        bytes[24] = 0x04;
        assert!(TraceContext::decode(&mut Reader::new(&bytes)).is_err(), "a flag without a meaning");
        assert!(TraceContext::decode(&mut Reader::new(&[0; 25])).is_err(), "ids of zero");
    }
}
