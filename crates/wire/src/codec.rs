//! Protobuf with a look before the leap: a message that would unfold into far more than its bytes is not unfolded.

use std::marker::PhantomData;

use prost::Message;
use prost::bytes::Buf;
use tonic::Status;
use tonic::codec::{BufferSettings, Codec, DecodeBuf, Decoder};
use tonic_prost::{ProstCodec, ProstEncoder};

use crate::{ANSWER_BYTES, ANSWER_FIELDS, ASK_BYTES, ASK_FIELDS, Code, v1};

/// How large a message may be before it is unfolded.
pub trait Bounds {
    /// Most bytes.
    const BYTES: usize;
    /// Most fields at its top.
    const FIELDS: usize;
}

macro_rules! bounds {
    ($bytes:ident, $fields:ident: $($name:ident)+) => {$(
        impl Bounds for v1::$name {
            const BYTES: usize = $bytes;
            const FIELDS: usize = $fields;
        }
    )+};
}

bounds! { ASK_BYTES, ASK_FIELDS:
    ClientBatch Request OpenSession RenewSession CloseSession Acquire AcquireAll Renew Held Revoke HandOff Free SetCapacity
    WaiveQuarantine ShowRequest ListRequest HeldByRequest WaitersRequest DeadlocksRequest HistoryRequest UsageRequest
    StatusRequest WatchRequest ChartersRequest SetCharter RemoveCharter Charter BackupRequest
    TrailRequest ExportTrailRequest VerifyTrailRequest ResizeHold Veto StateRequest QueueRequest
    Reports FencesRequest ForgetTarget StepDown ClusterRequest
}

bounds! { ANSWER_BYTES, ANSWER_FIELDS:
    ServerBatch Welcome SessionState Done Grant Grants Current ResourceView ResourceList LeaseList WaiterList DeadlockList
    EndedList UsageList Status Event Charters BackupPiece TrailPage TrailLines
    TrailVerified StateList QueueView Fences ClusterView
}

/// The codec of the service, on both sides.
#[derive(Clone, Debug)]
pub struct Bounded<T, U>(PhantomData<(T, U)>);

impl<T, U> Default for Bounded<T, U> {
    fn default() -> Self {
        Self(PhantomData)
    }
}

impl<T, U> Codec for Bounded<T, U>
where
    T: Message + Send + 'static,
    U: Message + Default + Bounds + Send + 'static,
{
    type Encode = T;
    type Decode = U;
    type Encoder = ProstEncoder<T>;
    type Decoder = Bounding<U>;

    fn encoder(&mut self) -> ProstEncoder<T> {
        ProstCodec::<T, U>::raw_encoder(BufferSettings::default())
    }

    fn decoder(&mut self) -> Bounding<U> {
        Bounding(PhantomData)
    }
}

/// The reading half of [`Bounded`].
#[derive(Clone, Debug)]
pub struct Bounding<U>(PhantomData<U>);

impl<U: Message + Default + Bounds> Decoder for Bounding<U> {
    type Item = U;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<U>, Status> {
        let bytes = from.copy_to_bytes(from.remaining());
        read(&bytes).map(Some).map_err(|garbled| crate::status(garbled.into()))
    }
}

/// Reads a message that is not too large, shows not too many fields, and is well-formed.
pub fn read<M: Message + Default + Bounds>(bytes: &[u8]) -> Result<M, Garbled> {
    if bytes.len() > M::BYTES {
        return Err(Garbled::TooLarge { bytes: bytes.len(), max: M::BYTES });
    }
    let fields = fields(bytes).ok_or(Garbled::Malformed)?;
    if fields > M::FIELDS {
        return Err(Garbled::TooMany { fields, max: M::FIELDS });
    }
    M::decode(bytes).map_err(|_| Garbled::Malformed)
}

/// Bytes that are not unfolded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Garbled {
    /// More bytes than a message may have.
    TooLarge {
        /// How many there are.
        bytes: usize,
        /// How many are allowed.
        max: usize,
    },
    /// More fields than a message may show at its top.
    TooMany {
        /// How many there are.
        fields: usize,
        /// How many are allowed.
        max: usize,
    },
    /// Not this message.
    Malformed,
}

impl From<Garbled> for crate::v1::Problem {
    fn from(garbled: Garbled) -> Self {
        let (code, message, limit) = match garbled {
            Garbled::TooLarge { bytes, max } => (
                Code::ResourceExhausted,
                "too many bytes in one message; send less at once",
                Some(("message_bytes", max, bytes)),
            ),
            Garbled::TooMany { fields, max } => (
                Code::ResourceExhausted,
                "too many entries in one message; send less at once",
                Some(("batch", max, fields)),
            ),
            Garbled::Malformed => {
                (Code::FrameError, "not a message of this service; check the versions of both sides", None)
            }
        };
        let mut problem = Self::of(code, message);
        if let Some((limit, max, got)) = limit {
            problem.limit = limit.into();
            (problem.max, problem.got) = (Some(max as u64), Some(got as u64));
        }
        problem
    }
}

/// How many fields a message shows at its top, without reading what is in them.
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
