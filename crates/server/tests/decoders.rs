//! Bytes from anywhere, given to everything that reads bytes: an answer or a refusal, no panic, and no more memory than the
//! bytes are worth.
//!
//! One test and one thread, because it looks at the memory of the whole process.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold_core::grantor::{CorruptionError, RecoveredGrantor};
use leasehold_core::record::Record;
use leasehold_core::token::Token;
use leasehold_server::journal::file::{Directory, FileOptions};
use leasehold_server::journal::{JournalLocation, Replay};
use leasehold_server::server::{ServerConfig, start};
use leasehold_wire::bounded_codec::{MessageLimits, decode};
use leasehold_wire::duration::HumanDuration;
use leasehold_wire::headers::IdempotencyKey;
use leasehold_wire::{
    Caller, DecodedCommand, TokenIssuer, decode_charter, decode_hello, decode_highest_token, json, v1,
};
use prost::Message;

/// What reads bytes, and says whether it could.
type Decoder = fn(&[u8]) -> bool;

fn issuer() -> TokenIssuer {
    TokenIssuer {
        cluster: leasehold_core::token::Cluster(*b"examples"),
        incarnation: leasehold_core::token::Incarnation(1),
    }
}

fn message<M: Message + Default + MessageLimits>(bytes: &[u8]) -> bool {
    decode::<M>(bytes).is_ok_and(|read| {
        assert!(read.encoded_len() <= 16 * bytes.len() + 16, "what was read says no more than it was told");
        true
    })
}

macro_rules! messages {
    ($($name:ident)+) => { vec![$(message::<v1::$name>,)+] };
}

macro_rules! bodies {
    ($($name:ident)+) => { vec![$(|bytes| json::decode::<json::$name>(bytes).is_ok(),)+] };
}

/// Reads a batch as the session stream does.
fn session(bytes: &[u8]) -> bool {
    let Ok(batch) = decode::<v1::ClientBatch>(bytes) else { return false };
    let caller = Caller { session: None, issuer: issuer() };
    let hello = batch.hello.as_ref().is_none_or(|hello| decode_hello(hello, [0; 32], &issuer()).is_ok());
    let asks = batch.requests.iter().filter_map(|request| request.require_operation().ok());
    let asked = asks.map(|ask| {
        leasehold_wire::core_request(1, ask, None, None, &issuer());
        DecodedCommand::decode(ask, &caller).is_ok_and(|asked| !format!("{:?}", asked.command()).is_empty())
    });
    hello & asked.fold(true, |all, one| all & one)
}

/// Everything that reads bytes of others.
fn decoders() -> Vec<Decoder> {
    let mut all: Vec<Decoder> = messages! {
        ClientBatch Request OpenSession RenewSession CloseSession Acquire AcquireAll Renew LeaseRef Revoke Handoff Free
        SetCapacity WaiveQuarantine ShowRequest ListRequest HeldByRequest WaitersRequest DeadlocksRequest HistoryRequest
        UsageRequest StatusRequest WatchRequest ChartersRequest SetCharter RemoveCharter Charter ServerBatch Welcome
        SessionState Done Grant Grants CurrentLease ResourceView ResourceList LeaseList WaiterList DeadlockList EndedLeaseList
        UsageList Status Event Charters StepDown ClusterRequest ClusterView
    };
    let bodies: Vec<Decoder> = bodies! {
        AcquireBody RenewBody ReleaseBody CheckBody HandoffBody RevokeBody FreeBody CapacityBody WaiveBody OpenSessionBody
        CharterBody SetCharterBody
    };
    let others: [Decoder; 10] = [
        session,
        |bytes| decode::<v1::Charter>(bytes).is_ok_and(|charter| decode_charter(&charter).is_ok()),
        |bytes| {
            let status = tonic::Status::with_details(tonic::Code::Unknown, "", bytes.to_vec().into());
            leasehold_wire::problem_from_status(&status).code != "INDETERMINATE"
        },
        |bytes| IdempotencyKey::parse(&String::from_utf8_lossy(bytes)).is_ok(),
        |bytes| Token::parse(&String::from_utf8_lossy(bytes)).is_ok(),
        |bytes| decode_highest_token(&String::from_utf8_lossy(bytes), &issuer()).is_ok(),
        |bytes| String::from_utf8_lossy(bytes).parse::<HumanDuration>().is_ok(),
        |bytes| {
            let mut from = leasehold_core::codec::Reader::new(bytes);
            while !from.is_empty() && Record::decode(&mut from).is_ok() {}
            from.is_empty()
        },
        |bytes| RecoveredGrantor::empty(1).apply(bytes).is_ok(),
        |bytes| RecoveredGrantor::from_snapshot(bytes, 1).is_ok_and(|read| read.state_hash() != [0; 32]),
    ];
    all.extend(bodies);
    all.extend(others);
    all
}

struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 29)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound as u64) as usize
    }

    /// Bytes of a length that is mostly small.
    fn bytes(&mut self) -> Vec<u8> {
        let most = [8, 64, 512, 4_096, 65_536][self.below(5)];
        (0..self.below(most)).map(|_| self.next() as u8).collect()
    }

    /// Something done to bytes that were right: a bit, a byte, a cut, a piece twice, or a number that claims much.
    fn damage(&mut self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        if bytes.is_empty() {
            return bytes;
        }
        let at = self.below(bytes.len());
        match self.below(6) {
            0 | 1 => bytes[at] ^= 1 << self.below(8),
            2 => bytes[at] = self.next() as u8,
            3 => bytes.truncate(at),
            4 => {
                let piece = bytes[at..(at + self.below(40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, piece);
            }
            _ => drop(bytes.splice(at..=at, [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f])),
        }
        bytes
    }
}

fn testdata() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("testdata")
}

fn corpus() -> Vec<Vec<u8>> {
    let mut paths: Vec<_> = fs::read_dir(testdata().join("corpus")).expect("the corpus is there").collect();
    paths.sort_by_key(|entry| entry.as_ref().expect("it can be read").path());
    paths.into_iter().map(|entry| fs::read(entry.expect("it can be read").path()).expect("a file")).collect()
}

/// Messages, records and snapshots that were right once: the other crates' goldens, as bytes.
fn right() -> Vec<Vec<u8>> {
    let crates = testdata().join("../..");
    let goldens = ["wire/testdata/golden", "core/testdata/golden"].map(|folder| crates.join(folder));
    let mut right = Vec::new();
    for entry in goldens.iter().flat_map(|folder| fs::read_dir(folder).expect("goldens are there")) {
        let path = entry.expect("it can be read").path();
        if path.extension().is_none_or(|end| end != "hex") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("text");
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).expect("digits"), 16).expect("digits");
        right.push(digits.chunks_exact(2).map(byte).collect());
    }
    assert!(right.len() >= 6, "the goldens were found");
    right
}

/// The most memory that this process ever asked for, in KiB, touched or not.
fn asked_for() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("Linux tells");
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).expect("the peak is told");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("a number")
}

/// Far below what a length that lies could ask for, far above what these bytes are worth.
const MOST_KIB: u64 = 256 << 10;

fn depth(quick: usize, full: usize, deep: usize) -> usize {
    match std::env::var("LEASEHOLD_DEPTH").as_deref() {
        Ok("quick") => quick,
        Ok("deep") => deep,
        _ => full,
    }
}

#[test]
fn bytes_from_anywhere_are_read_or_refused_and_cost_little() {
    let mut chance = Chance(5);
    let (all, right) = (decoders(), right());
    let journal = a_journal();
    let before = asked_for();
    let mut were_read = vec![false; all.len()];
    let mut decode = |bytes: &[u8]| {
        for (decode, was_read) in all.iter().zip(&mut were_read) {
            *was_read |= decode(bytes);
        }
    };
    for bytes in corpus() {
        decode(&bytes);
        for _ in 0..depth(5, 50, 500) {
            decode(&chance.damage(&bytes));
        }
    }
    for _ in 0..depth(100, 1_500, 50_000) {
        decode(&chance.bytes());
        let golden = &right[chance.below(right.len())];
        decode(&chance.damage(golden));
    }
    let ever = were_read.iter().filter(|was_read| **was_read).count();
    assert!(ever * 2 > all.len(), "most of them read something: {ever} of {}", all.len());
    let (mut read, mut refused) = (0, 0);
    for _ in 0..depth(20, 200, 5_000) {
        if reopened(&journal, &mut chance) { read += 1 } else { refused += 1 }
    }
    assert!(read > 0 && refused > 0, "{read} read, {refused} refused: both happen");
    let more = asked_for() - before;
    assert!(more < MOST_KIB, "{more} KiB were asked for");
}

/// The files that a server left behind after a little work.
fn a_journal() -> Vec<(String, Vec<u8>)> {
    let above = tempfile::tempdir().expect("a directory");
    let place = Directory { path: above.path().join("data"), options: options() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let settings = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
        let running = start(place.clone(), settings).await.expect("a server on a free port starts");
        let api = running.api().clone();
        for i in 0..60 {
            let acquire = v1::Acquire {
                resource: format!("jobs/{i}"),
                holder: "w".into(),
                ttl_ms: Some(60_000),
                options: Some(v1::AcquireOptions { metadata: vec![7; 200], ..Default::default() }),
                ..Default::default()
            };
            let told = api.call(Default::default(), v1::request::Operation::Acquire(acquire)).await.expect("it serves");
            assert!(matches!(told, (v1::response::Answer::Granted(_), _)), "{told:?}");
        }
        running.stop().await;
    });
    let entries = fs::read_dir(&place.path).expect("it is there").map(|entry| entry.expect("it can be read"));
    let files = entries
        .map(|entry| (entry.file_name().into_string().expect("plain names"), fs::read(entry.path()).expect("a file")));
    let files: Vec<_> = files.filter(|(name, _)| name != "pid" && name != "spare").collect();
    assert!(files.len() >= 4, "several segments: {:?}", files.iter().map(|(name, _)| name).collect::<Vec<_>>());
    files
}

fn options() -> FileOptions {
    FileOptions { segment_bytes: 4_096, accept_copy: true, background: false }
}

/// Opens the journal with one of its files damaged. Whether it could be opened.
fn reopened(files: &[(String, Vec<u8>)], chance: &mut Chance) -> bool {
    use std::os::unix::fs::DirBuilderExt;
    let above = tempfile::tempdir().expect("a directory");
    let data = above.path().join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).expect("there is room");
    let damaged = chance.below(files.len());
    for (at, (name, bytes)) in files.iter().enumerate() {
        let bytes = if at != damaged {
            bytes.clone()
        } else if chance.below(8) == 0 {
            chance.bytes()
        } else {
            chance.damage(bytes)
        };
        fs::write(data.join(name), bytes).expect("there is room");
    }
    let mut fold = Fold(RecoveredGrantor::empty(1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    let opened = runtime.block_on(Directory { path: data, options: options() }.open(&mut fold));
    match opened {
        Ok(_) => true,
        Err(error) => {
            let known = ["CORRUPT", "WRONG_CLUSTER", "UNSUPPORTED_VERSION", "CONFIG"];
            assert!(known.contains(&error.code()), "{error}");
            false
        }
    }
}

struct Fold(RecoveredGrantor);

impl Replay for Fold {
    fn snapshot(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.0 = RecoveredGrantor::from_snapshot(bytes, 1)?;
        Ok(())
    }

    fn batch(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.0.apply(bytes)
    }
}
