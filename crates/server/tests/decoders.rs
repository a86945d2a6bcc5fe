//! Arbitrary and damaged bytes for every decoder: each returns a value or an error, never panics, and allocates little.
//!
//! One test on one thread, because it measures the memory of the whole process.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use leasehold_core::grantor::{CorruptionError, RecoveredGrantor};
use leasehold_core::record::Record;
use leasehold_core::token::Token;
use leasehold_server::journal::file::{Directory, FileOptions};
use leasehold_server::journal::{JournalLocation, Replay};
use leasehold_server::server::{ServerConfig, start};
use leasehold_server::snapshot_file::SnapshotFile;
use leasehold_testkit::depth::depth;
use leasehold_testkit::rng::SplitMix64;
use leasehold_wire::bounded_codec::{MessageLimits, decode};
use leasehold_wire::duration::HumanDuration;
use leasehold_wire::headers::IdempotencyKey;
use leasehold_wire::{
    CommandContext, DecodedCommand, TokenIssuer, decode_charter, decode_hello, decode_highest_token, json, v1,
};
use prost::Message;

/// Decodes bytes and returns whether they were valid.
type Decoder = fn(&[u8]) -> bool;

fn issuer() -> TokenIssuer {
    TokenIssuer {
        cluster: leasehold_core::token::Cluster(*b"examples"),
        incarnation: leasehold_core::token::Incarnation(1),
    }
}

fn message<M: Message + Default + MessageLimits>(bytes: &[u8]) -> bool {
    decode::<M>(bytes).is_ok_and(|message| {
        assert!(message.encoded_len() <= 16 * bytes.len() + 16, "the message is not larger than its bytes");
        true
    })
}

macro_rules! messages {
    ($($name:ident)+) => { vec![$(message::<v1::$name>,)+] };
}

macro_rules! bodies {
    ($($name:ident)+) => { vec![$(|bytes| json::decode::<json::$name>(bytes).is_ok(),)+] };
}

/// Decodes a batch as the session stream does.
fn session_batch(bytes: &[u8]) -> bool {
    let Ok(batch) = decode::<v1::ClientBatch>(bytes) else { return false };
    let caller = CommandContext { session: None, issuer: issuer() };
    let hello = batch.hello.as_ref().is_none_or(|hello| decode_hello(hello, [0; 32].into(), &issuer()).is_ok());
    let operations = batch.requests.iter().filter_map(|request| request.require_operation().ok());
    let decoded = operations.map(|operation| {
        leasehold_wire::core_request(1, operation, None, None, &issuer());
        DecodedCommand::decode(operation, &caller).is_ok_and(|decoded| !format!("{:?}", decoded.command()).is_empty())
    });
    hello & decoded.fold(true, |all, one| all & one)
}

/// Every decoder of external bytes.
fn decoders() -> Vec<Decoder> {
    let mut all: Vec<Decoder> = messages! {
        ClientBatch Request OpenSession RenewSession CloseSession Acquire AcquireAll Renew LeaseRef Revoke Handoff Free
        SetCapacity SetMaxTtl WaiveQuarantine ShowRequest ListRequest ListLeasesRequest HeldByRequest WaitersRequest DeadlocksRequest HistoryRequest
        UsageRequest StatusRequest WatchRequest ChartersRequest SetCharter RemoveCharter Charter ServerBatch Welcome
        SessionState Done Grant Grants CurrentLease ResourceView ResourceList ListedLeases LeaseList WaiterList DeadlockList EndedLeaseList
        UsageList Status Event Charters StepDown ClusterRequest ClusterView
    };
    let bodies: Vec<Decoder> = bodies! {
        AcquireBody RenewBody ReleaseBody CheckBody HandoffBody RevokeBody FreeBody CapacityBody WaiveBody OpenSessionBody
        CharterBody SetCharterBody
    };
    let others: [Decoder; 10] = [
        session_batch,
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

/// Random bytes and random damage.
struct ByteRng(SplitMix64);

impl ByteRng {
    fn next(&mut self) -> u64 {
        self.0.next_u64()
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0.below(bound as u64) as usize
    }

    /// Random bytes, mostly few.
    fn bytes(&mut self) -> Vec<u8> {
        let limit = [8, 64, 512, 4_096, 65_536][self.below(5)];
        (0..self.below(limit)).map(|_| self.next() as u8).collect()
    }

    /// Damages valid bytes: flips a bit, changes a byte, truncates, repeats a part, or inserts a large length.
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
                let part = bytes[at..(at + self.below(40)).min(bytes.len())].to_vec();
                bytes.splice(at..at, part);
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
    let mut paths: Vec<_> = fs::read_dir(testdata().join("corpus")).expect("the corpus exists").collect();
    paths.sort_by_key(|entry| entry.as_ref().expect("the entry is readable").path());
    paths
        .into_iter()
        .map(|entry| fs::read(entry.expect("the entry is readable").path()).expect("the file is readable"))
        .collect()
}

/// Valid messages, records and snapshots: the golden files of the other crates.
fn golden_bytes() -> Vec<Vec<u8>> {
    let crates = testdata().join("../..");
    let folders = ["wire/testdata/golden", "core/testdata/golden"].map(|folder| crates.join(folder));
    let mut goldens = Vec::new();
    for entry in folders.iter().flat_map(|folder| fs::read_dir(folder).expect("the golden files exist")) {
        let path = entry.expect("the entry is readable").path();
        if path.extension().is_none_or(|end| end != "hex") {
            continue;
        }
        let text = fs::read_to_string(&path).expect("the file is UTF-8");
        let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
        let byte = |pair: &[u8]| {
            u8::from_str_radix(std::str::from_utf8(pair).expect("hexadecimal digits"), 16).expect("hexadecimal digits")
        };
        goldens.push(digits.chunks_exact(2).map(byte).collect());
    }
    assert!(goldens.len() >= 6, "only {} golden files", goldens.len());
    goldens
}

/// Peak virtual memory of this process, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").expect("/proc is mounted");
    let line = status.lines().find(|line| line.starts_with("VmPeak:")).expect("the status contains the peak");
    line.split_whitespace().nth(1).and_then(|text| text.parse().ok()).expect("the peak is a number")
}

/// Far below what a false length could allocate, and far above what these bytes need.
const MAX_GROWTH_KIB: u64 = 256 << 10;

#[test]
fn arbitrary_bytes_are_decoded_or_refused_and_allocate_little() {
    let mut rng = ByteRng(SplitMix64::new(5));
    let (decoders, goldens) = (decoders(), golden_bytes());
    let journal = journal_files();
    let before = peak_memory();
    let mut succeeded = vec![false; decoders.len()];
    let mut decode = |bytes: &[u8]| {
        for (decoder, success) in decoders.iter().zip(&mut succeeded) {
            *success |= decoder(bytes);
        }
    };
    for bytes in corpus() {
        decode(&bytes);
        for _ in 0..depth(5, 50, 500) {
            decode(&rng.damage(&bytes));
        }
    }
    for _ in 0..depth(100, 1_500, 50_000) {
        decode(&rng.bytes());
        let golden = &goldens[rng.below(goldens.len())];
        decode(&rng.damage(golden));
    }
    let count = succeeded.iter().filter(|success| **success).count();
    assert!(count * 2 > decoders.len(), "only {count} of {} decoders accepted anything", decoders.len());
    let (mut opened, mut refused) = (0, 0);
    for _ in 0..depth(20, 200, 5_000) {
        if opens_damaged(&journal, &mut rng) { opened += 1 } else { refused += 1 }
    }
    assert!(opened > 0 && refused > 0, "{opened} opened, {refused} refused");
    let growth = peak_memory() - before;
    assert!(growth < MAX_GROWTH_KIB, "the peak grew by {growth} KiB");
}

/// The files of a journal that a server wrote.
fn journal_files() -> Vec<(String, Vec<u8>)> {
    let parent = tempfile::tempdir().expect("a temporary directory");
    let location = Directory { path: parent.path().join("data"), options: options() };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("the runtime starts");
    runtime.block_on(async {
        let config = ServerConfig { listen: SocketAddr::from(([127, 0, 0, 1], 0)), ..ServerConfig::default() };
        let server = start(location.clone(), config).await.expect("a server starts on a free port");
        let api = server.api().clone();
        for i in 0..60 {
            let acquire = v1::Acquire {
                resource: format!("jobs/{i}"),
                holder: "w".into(),
                ttl_ms: Some(60_000),
                options: Some(v1::AcquireOptions { metadata: vec![7; 200], ..Default::default() }),
                ..Default::default()
            };
            let reply = api
                .call(Default::default(), v1::request::Operation::Acquire(acquire))
                .await
                .expect("the server is running");
            assert!(matches!(reply, (v1::response::Answer::Granted(_), _)), "{reply:?}");
        }
        server.stop().await;
    });
    let entries =
        fs::read_dir(&location.path).expect("the directory exists").map(|entry| entry.expect("the entry is readable"));
    let files = entries.map(|entry| {
        (
            entry.file_name().into_string().expect("the name is UTF-8"),
            fs::read(entry.path()).expect("the file is readable"),
        )
    });
    let files: Vec<_> = files.filter(|(name, _)| name != "pid" && name != "spare").collect();
    assert!(
        files.len() >= 4,
        "the journal has several segments: {:?}",
        files.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    files
}

fn options() -> FileOptions {
    FileOptions { segment_bytes: 4_096, accept_copy: true, background: false }
}

/// Opens the journal with one of its files damaged, and returns whether it opened.
fn opens_damaged(files: &[(String, Vec<u8>)], rng: &mut ByteRng) -> bool {
    use std::os::unix::fs::DirBuilderExt;
    let parent = tempfile::tempdir().expect("a temporary directory");
    let data = parent.path().join("data");
    fs::DirBuilder::new().mode(0o700).create(&data).expect("the disk has space");
    let damaged = rng.below(files.len());
    for (at, (name, bytes)) in files.iter().enumerate() {
        let bytes = if at != damaged {
            bytes.clone()
        } else if rng.below(8) == 0 {
            rng.bytes()
        } else {
            rng.damage(bytes)
        };
        fs::write(data.join(name), bytes).expect("the disk has space");
    }
    let mut replay = GrantorReplay(RecoveredGrantor::empty(1));
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("the runtime starts");
    let opened = runtime.block_on(Directory { path: data, options: options() }.open(&mut replay));
    match opened {
        Ok(_) => true,
        Err(error) => {
            let known = ["CORRUPT", "WRONG_CLUSTER", "UNSUPPORTED_VERSION", "CONFIG"];
            assert!(known.contains(&error.code()), "{error}");
            false
        }
    }
}

struct GrantorReplay(RecoveredGrantor);

impl Replay for GrantorReplay {
    fn snapshot(&mut self, sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.0 = RecoveredGrantor::from_snapshot(SnapshotFile::decode(bytes, sequence)?.state, 1)?;
        Ok(())
    }

    fn batch(&mut self, _sequence: u64, bytes: &[u8]) -> Result<(), CorruptionError> {
        self.0.apply(bytes)
    }
}
