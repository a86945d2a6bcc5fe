//! The body of a stream of messages, which charges the part of a message that has arrived to the budget of unfinished bodies.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use axum::body::{Body, Bytes, HttpBody};
use hyper::body::{Frame, SizeHint};

use super::body_limit::{BodyCharge, ConnectionBodies, GRPC_PREFIX};
use super::identity_traffic::BodyKind;

/// A body of gRPC messages without an end.
pub struct MeteredBody {
    body: Body,
    bodies: Arc<ConnectionBodies>,
    meter: MessageMeter,
    charge: BodyCharge,
    /// Bytes that may still arrive, if the stream is bounded.
    left: Option<usize>,
}

impl MeteredBody {
    /// Charges to this connection and its server. The stream breaks after `max` bytes, if it is bounded.
    pub fn new(body: Body, bodies: Arc<ConnectionBodies>, max: Option<usize>) -> Self {
        Self { body, bodies, meter: MessageMeter::default(), charge: BodyCharge::default(), left: max }
    }

    /// Charges the message that is unfinished after these bytes; false if a limit is reached.
    fn received(&mut self, bytes: &[u8]) -> bool {
        if let Some(left) = &mut self.left {
            match left.checked_sub(bytes.len()) {
                Some(rest) => *left = rest,
                None => return false,
            }
        }
        let before = self.meter.unfinished();
        let is_same = self.meter.received(bytes);
        if !is_same {
            self.charge = BodyCharge::default();
        }
        let charged = if is_same { before } else { 0 };
        self.charge.add(&self.bodies, self.meter.unfinished() - charged, BodyKind::SessionStream).is_ok()
    }
}

impl HttpBody for MeteredBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        if let Some(Ok(frame)) = &frame
            && let Some(bytes) = frame.data_ref()
            && !self.received(bytes)
        {
            return Poll::Ready(Some(Err(axum::Error::new("too many requests are unfinished"))));
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// Follows the messages in a stream of bytes.
#[derive(Debug, Default)]
struct MessageMeter {
    /// Bytes of the prefix of the current message that have arrived.
    prefix: Vec<u8>,
    /// Bytes of the current message after its prefix: arrived, and expected once the prefix is complete.
    arrived: usize,
    expected: usize,
}

impl MessageMeter {
    /// Bytes of the current message that have arrived.
    fn unfinished(&self) -> usize {
        self.prefix.len() + self.arrived
    }

    /// Advances; true if the message that was current still is.
    fn received(&mut self, mut bytes: &[u8]) -> bool {
        let mut is_same = true;
        while !bytes.is_empty() {
            let prefix_left = GRPC_PREFIX - self.prefix.len();
            let (prefix, rest) = bytes.split_at(prefix_left.min(bytes.len()));
            self.prefix.extend_from_slice(prefix);
            bytes = rest;
            let &[_, a, b, c, d] = self.prefix.as_slice() else { break };
            self.expected = u32::from_be_bytes([a, b, c, d]) as usize;
            let part = bytes.len().min(self.expected - self.arrived);
            self.arrived += part;
            bytes = &bytes[part..];
            if self.arrived == self.expected {
                *self = Self::default();
                is_same = false;
            }
        }
        is_same
    }
}

#[cfg(test)]
mod tests {
    use super::super::body_limit::BodyBudget;
    use super::super::limits::CONNECTION_BODY_BYTES;
    use super::*;

    fn message(length: usize) -> Vec<u8> {
        [&[0][..], &(length as u32).to_be_bytes(), &vec![7; length]].concat()
    }

    #[test]
    fn only_the_unfinished_message_counts_however_the_bytes_are_cut() {
        let lengths = [3, 0, 1_000, 0, 0, 70_000, 5];
        let bytes: Vec<u8> = lengths.iter().flat_map(|length| message(*length)).collect();
        for cut in [1, 4, 5, 6, 999, 16_384, bytes.len()] {
            let mut meter = MessageMeter::default();
            let mut at = 0;
            for chunk in bytes.chunks(cut) {
                meter.received(chunk);
                at += chunk.len();
                let mut rest = at;
                for length in lengths {
                    rest = if rest >= length + GRPC_PREFIX { rest - length - GRPC_PREFIX } else { break };
                }
                assert_eq!(meter.unfinished(), rest, "after {at} bytes in parts of {cut}");
            }
        }
    }

    #[test]
    fn an_unfinished_message_is_charged_until_it_is_complete() {
        let budget = BodyBudget::new(1_000);
        let bodies = budget.connection(None);
        let mut one = MeteredBody::new(Body::empty(), bodies.clone(), None);
        let long = message(CONNECTION_BODY_BYTES + 100);
        let (most, rest) = long.split_at(CONNECTION_BODY_BYTES);
        assert!(one.received(most));
        let mut other = MeteredBody::new(Body::empty(), bodies.clone(), None);
        assert!(other.received(&message(2_000)), "a complete message is not charged");
        assert!(other.received(&message(2_000)[..900]));
        assert!(!other.received(&[7; 101]), "both share what is left");
        assert!(one.received(rest), "the rest completes the message");
        drop(other);
        assert!(MeteredBody::new(Body::empty(), bodies, None).received(most), "everything was returned");
    }

    #[test]
    fn a_bounded_stream_breaks_after_its_bytes() {
        let bodies = BodyBudget::new(1_000).connection(None);
        let mut bounded = MeteredBody::new(Body::empty(), bodies, Some(1_000));
        assert!(bounded.received(&message(600)));
        assert!(bounded.received(&message(385)), "995 bytes with their prefixes");
        assert!(!bounded.received(&message(1)));
    }
}
