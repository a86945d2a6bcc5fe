//! Protobuf codec with limits. It counts the bytes and top-level fields of a message before decoding it, so that a small
//! message cannot expand into a large amount of memory.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::{Code, MAX_REQUEST_BYTES, MAX_REQUEST_FIELDS, MAX_RESPONSE_BYTES, MAX_RESPONSE_FIELDS, v1};

/// Size limits of a message, checked before decoding.
pub trait MessageLimits {
    /// Maximum number of bytes.
    const MAX_BYTES: usize;
    /// Maximum number of top-level fields.
    const MAX_FIELDS: usize;
}

macro_rules! message_limits {
    ($bytes:ident, $fields:ident: $($name:ident)+) => {$(
        impl MessageLimits for v1::$name {
            const MAX_BYTES: usize = $bytes;
            const MAX_FIELDS: usize = $fields;
        }
    )+};
}

message_limits! { MAX_REQUEST_BYTES, MAX_REQUEST_FIELDS:
    ClientBatch Request OpenSession RenewSession CloseSession Acquire AcquireAll Renew LeaseRef Revoke Handoff Free
    SetCapacity SetMaxTtl WaiveQuarantine ShowRequest ListRequest ListLeasesRequest HeldByRequest WaitersRequest DeadlocksRequest HistoryRequest
    UsageRequest StatusRequest WatchRequest ChartersRequest SetCharter RemoveCharter Charter BackupRequest AuditRequest
    ExportAuditRequest VerifyAuditRequest ResizeHold Veto StateRequest QueueRequest FenceReports CoverageRequest
    Reconcile Cancel SessionLeasesRequest RenewLeasesRequest Progress Put Pin Collect DeliveryCommand CacheCommand ObserveToken
    ForgetTarget StepDown Approve CancelProposal ProposalsRequest ClusterRequest ListAuditHeadsRequest ListDenialsRequest
    KeysRequest
}

message_limits! { MAX_RESPONSE_BYTES, MAX_RESPONSE_FIELDS:
    SessionLeaseList RenewBatchResult PutResult CollectResult DeliveryAnswer CacheAnswer
    ServerBatch Welcome SessionState Done Grant Grants CurrentLease ResourceView ResourceList ListedLeases LeaseList WaiterList
    DeadlockList EndedLeaseList UsageList Status Event Charters BackupChunk AuditPage AuditExportChunk AuditVerification
    StateList QueueView Coverage ClusterView AuditHeads Denials SealKeySet ProposalList
}

/// The codec of the gRPC service, for client and server.
#[derive(Clone, Debug)]
pub struct BoundedCodec<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for BoundedCodec<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for BoundedCodec<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + MessageLimits + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = BoundedDecoder<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> BoundedDecoder<U> {
        BoundedDecoder(PhantomData)
    }
}

/// The decoder of [`BoundedCodec`].
#[derive(Clone, Debug)]
pub struct BoundedDecoder<U>(PhantomData<U>);

impl<U: Message + Default + MessageLimits> Decoder for BoundedDecoder<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        decode(&bytes).map(Some).map_err(|error| crate::problem_to_status(error.into()))
    }
}

/// Decodes a message after checking its limits.
pub fn decode<M: Message + Default + MessageLimits>(bytes: &[u8]) -> Result<M, MessageError> {
    if bytes.len() > M::MAX_BYTES {
        return Err(MessageError::TooLarge { bytes: bytes.len(), max: M::MAX_BYTES });
    }
    let fields = fields(bytes).ok_or(MessageError::Malformed)?;
    if fields > M::MAX_FIELDS {
        return Err(MessageError::TooMany { fields, max: M::MAX_FIELDS });
    }
    M::decode(bytes).map_err(|_| MessageError::Malformed)
}

/// A message that was not decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageError {
    /// Too many bytes.
    TooLarge {
        /// Size of the message.
        bytes: usize,
        /// The limit.
        max: usize,
    },
    /// Too many top-level fields.
    TooMany {
        /// Number of fields.
        fields: usize,
        /// The limit.
        max: usize,
    },
    /// Not a valid encoding of this message.
    Malformed,
}

impl From<MessageError> for crate::v1::Problem {
    fn from(error: MessageError) -> Self {
        let (code, message, limit) = match error {
            MessageError::TooLarge { bytes, max } => (
                Code::ResourceExhausted,
                "message is too large; send fewer entries per message",
                Some((crate::MESSAGE_BYTES_LIMIT, max, bytes)),
            ),
            MessageError::TooMany { fields, max } => (
                Code::ResourceExhausted,
                "too many entries in one message; send fewer per message",
                Some(("batch", max, fields)),
            ),
            MessageError::Malformed => (
                Code::FrameError,
                "not a valid message of this service; check that both sides have compatible versions",
                None,
            ),
        };
        let mut problem = Self::of(code, message);
        if let Some((limit, max, got)) = limit {
            problem.limit = limit.into();
            (problem.max, problem.got) = (Some(max as u64), Some(got as u64));
        }
        problem
    }
}

/// Number of top-level fields of a message. Skips their contents.
fn fields(mut bytes: &[u8]) -> Option<usize> {
    let mut count = 0;
    while !bytes.is_empty() {
        let key = varint(&mut bytes)?;
        let skip = match key & 7 {
            0 => {
                varint(&mut bytes)?;
                0
            }
            1 => 8,
            2 => usize::try_from(varint(&mut bytes)?).ok()?,
            5 => 4,
            _ => return None,
        };
        bytes = bytes.get(skip..)?;
        count += 1;
    }
    Some(count)
}

fn varint(bytes: &mut &[u8]) -> Option<u64> {
    let mut value = 0;
    for place in 0..10 {
        let (byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << (7 * place);
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}
