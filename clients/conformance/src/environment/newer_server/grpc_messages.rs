//! Adds unknown fields, enum values, events and codes to gRPC messages.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use leasehold_wire::v1;
use prost::Message;

use super::{UNKNOWN_CODE, UNKNOWN_WORD};

/// A number that no enum has.
const UNKNOWN_ENUM: i32 = 99;
/// Field 15,000 with the text `from_the_future`: no message has it.
const UNKNOWN_FIELD: &[u8] = b"\xc2\xa9\x07\x0ffrom_the_future";
/// Bytes before each message: a flag and the length.
const PREFIX: usize = 5;

/// Rewrites the messages of one response.
#[derive(Debug)]
pub struct MessageRewriter {
    is_session: bool,
    incomplete: BytesMut,
}

impl MessageRewriter {
    /// A rewriter for one response; `is_session` for the session stream.
    pub fn new(is_session: bool) -> Self {
        Self { is_session, incomplete: BytesMut::new() }
    }

    /// Takes over the next bytes, and returns the messages that are complete.
    pub fn rewrite(&mut self, data: Bytes) -> Bytes {
        self.incomplete.extend_from_slice(&data);
        let mut out = BytesMut::new();
        while self.incomplete.len() >= PREFIX {
            let length = (&self.incomplete[1..PREFIX]).get_u32() as usize;
            if self.incomplete.len() < PREFIX + length {
                break;
            }
            let message = self.incomplete.split_to(PREFIX + length);
            let (flag, body) = (message[0], self.rewrite_message(&message[PREFIX..]));
            out.put_u8(flag);
            out.put_u32(u32::try_from(body.len()).unwrap_or(u32::MAX));
            out.put_slice(&body);
        }
        out.freeze()
    }

    fn rewrite_message(&self, message: &[u8]) -> Vec<u8> {
        let mut body = match v1::ServerBatch::decode(message) {
            Ok(batch) if self.is_session => rewrite_batch(batch).encode_to_vec(),
            _ => message.to_vec(),
        };
        body.extend_from_slice(UNKNOWN_FIELD);
        body
    }
}

fn rewrite_batch(mut batch: v1::ServerBatch) -> v1::ServerBatch {
    use v1::event::Event as EventKind;
    use v1::response::Answer;

    if let Some(welcome) = &mut batch.welcome {
        welcome.validity = UNKNOWN_ENUM;
    }
    for response in &mut batch.responses {
        match &mut response.answer {
            Some(Answer::Granted(grant)) => grant.validity = UNKNOWN_ENUM,
            Some(Answer::Refused(problem)) => rewrite_problem(problem),
            _ => {}
        }
    }
    for event in &mut batch.events {
        if let Some(EventKind::Ended(ended)) = &mut event.event {
            ended.reason = UNKNOWN_ENUM;
        }
    }
    // An event of a kind that no client knows.
    let position = batch.position;
    batch.events.push(v1::Event { position, resource: UNKNOWN_WORD.into(), ..Default::default() });
    batch
}

fn rewrite_problem(problem: &mut v1::Problem) {
    match problem.code.as_str() {
        "BUSY" => problem.code = UNKNOWN_CODE.into(),
        "LEASE_LOST" => problem.reason = UNKNOWN_WORD.into(),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_rewritten_across_frames_and_stay_readable() {
        let problem = v1::Problem { code: "BUSY".into(), ..Default::default() };
        let response = v1::Response { sequence: 1, answer: Some(v1::response::Answer::Refused(problem.into())) };
        let batch = v1::ServerBatch { responses: vec![response], ..Default::default() }.encode_to_vec();
        let mut frame = vec![0];
        frame.extend((batch.len() as u32).to_be_bytes());
        frame.extend(&batch);
        let mut rewriter = MessageRewriter::new(true);
        assert!(rewriter.rewrite(Bytes::copy_from_slice(&frame[..7])).is_empty());
        let out = rewriter.rewrite(Bytes::copy_from_slice(&frame[7..]));
        assert_eq!((&out[1..5]).get_u32() as usize, out.len() - PREFIX);
        let read = v1::ServerBatch::decode(&out[PREFIX..]).expect("unknown fields are skipped");
        let Some(v1::response::Answer::Refused(problem)) = &read.responses[0].answer else { panic!("{read:?}") };
        assert_eq!(problem.code, UNKNOWN_CODE);
        assert!(out.ends_with(b"from_the_future"));
    }
}
