//! The JSON files: a private key, a set of public keys, and a stamp key. All have a version and refuse unknown fields.

use crate::base64url;
use crate::error::SealKeyError;
use crate::kid::Kid;
use crate::public_key::PublicSealKey;
use serde::{Deserialize, Serialize};
use serde_json::error::Category;
use zeroize::{Zeroize, Zeroizing};

/// The version of all formats.
const VERSION: u32 = 1;

/// What a private key file holds.
pub struct PrivateFile {
    pub kid: Kid,
    pub created_ms: u64,
    pub active_ms: u64,
    pub end_ms: Option<u64>,
    pub seed: Zeroizing<[u8; 32]>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PrivateJson {
    version: u32,
    kid: String,
    created_ms: u64,
    active_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_ms: Option<u64>,
    private: String,
}

impl Drop for PrivateJson {
    fn drop(&mut self) {
        self.private.zeroize();
    }
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PublicJson {
    kid: String,
    public: String,
    active_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    end_ms: Option<u64>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SetJson {
    version: u32,
    keys: Vec<PublicJson>,
}

/// What the file of a stamp key holds.
pub struct StampFile {
    pub id: Kid,
    pub target: String,
    pub prefix: String,
    pub created_ms: u64,
    pub active_ms: u64,
    /// 64 hexadecimal digits.
    pub key: Zeroizing<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct StampJson {
    version: u32,
    id: String,
    target: String,
    prefix: String,
    created_ms: u64,
    active_ms: u64,
    key: String,
}

impl Drop for StampJson {
    fn drop(&mut self) {
        self.key.zeroize();
    }
}

/// Reads a private key file. The caller compares `kid` with the id of the key.
pub fn read_private(text: &str) -> Result<PrivateFile, SealKeyError> {
    let file: PrivateJson = parse(text)?;
    let seed = base64url::decode::<32>(&file.private).map(Zeroizing::new);
    let seed = seed.ok_or(SealKeyError::Field { field: "private", expected: "43 characters of base64url" })?;
    let (created_ms, active_ms, end_ms) = (file.created_ms, file.active_ms, file.end_ms);
    Ok(PrivateFile { kid: parse_kid(&file.kid)?, created_ms, active_ms, end_ms, seed })
}

pub fn write_private(file: &PrivateFile) -> Result<Zeroizing<String>, SealKeyError> {
    let json = PrivateJson {
        version: VERSION,
        kid: file.kid.to_string(),
        created_ms: file.created_ms,
        active_ms: file.active_ms,
        end_ms: file.end_ms,
        private: base64url::encode(file.seed.as_slice()),
    };
    private_text(&json)
}

/// Reads the file of a stamp key. The caller compares `id` with the id of the key.
pub fn read_stamp(text: &str) -> Result<StampFile, SealKeyError> {
    let mut file: StampJson = parse(text)?;
    let (id, key) = (parse_kid(&file.id)?, Zeroizing::new(std::mem::take(&mut file.key)));
    let (target, prefix) = (std::mem::take(&mut file.target), std::mem::take(&mut file.prefix));
    Ok(StampFile { id, target, prefix, created_ms: file.created_ms, active_ms: file.active_ms, key })
}

pub fn write_stamp(file: &StampFile) -> Result<Zeroizing<String>, SealKeyError> {
    private_text(&StampJson {
        version: VERSION,
        id: file.id.to_string(),
        target: file.target.clone(),
        prefix: file.prefix.clone(),
        created_ms: file.created_ms,
        active_ms: file.active_ms,
        key: file.key.to_string(),
    })
}

/// A private file as text, which is wiped when it is dropped.
fn private_text(json: &impl Serialize) -> Result<Zeroizing<String>, SealKeyError> {
    // Reserved at once, so that growing leaves no copy behind.
    let mut text = Zeroizing::new(Vec::with_capacity(4096));
    serde_json::to_writer_pretty(&mut *text, json).map_err(|error| json_error(&error))?;
    text.push(b'\n');
    let text = std::str::from_utf8(&text).map_err(|_| SealKeyError::Provider)?;
    Ok(Zeroizing::new(text.to_owned()))
}

pub fn read_public(text: &str) -> Result<Vec<PublicSealKey>, SealKeyError> {
    let set: SetJson = parse(text)?;
    set.keys.iter().map(read_one).collect()
}

fn read_one(json: &PublicJson) -> Result<PublicSealKey, SealKeyError> {
    let bytes = base64url::decode::<32>(&json.public);
    let bytes = bytes.ok_or(SealKeyError::Field { field: "public", expected: "43 characters of base64url" })?;
    let key = PublicSealKey::new(bytes, json.active_ms, json.end_ms)?;
    check_kid(parse_kid(&json.kid)?, key.kid())?;
    Ok(key)
}

pub fn write_public<'a>(keys: impl Iterator<Item = &'a PublicSealKey>) -> String {
    let keys = keys.map(|key| PublicJson {
        kid: key.kid().to_string(),
        public: key.public_text(),
        active_ms: key.active_ms(),
        end_ms: key.end_ms(),
    });
    let set = SetJson { version: VERSION, keys: keys.collect() };
    let mut text = serde_json::to_string_pretty(&set).expect("texts and numbers are JSON");
    text.push('\n');
    text
}

fn parse_kid(text: &str) -> Result<Kid, SealKeyError> {
    text.parse().map_err(|_| SealKeyError::Field { field: "kid", expected: "8 lower-case hexadecimal digits" })
}

/// Refuses a key whose file states another id.
pub fn check_kid(stated: Kid, actual: Kid) -> Result<(), SealKeyError> {
    if stated == actual { Ok(()) } else { Err(SealKeyError::WrongKid { stated, actual }) }
}

/// Reads the version first, so that a newer file is reported as newer and not as malformed.
fn parse<T: for<'a> Deserialize<'a>>(text: &str) -> Result<T, SealKeyError> {
    #[derive(Deserialize)]
    struct Versioned {
        version: u32,
    }
    let Versioned { version } = serde_json::from_str(text).map_err(|error| json_error(&error))?;
    if version != VERSION {
        return Err(SealKeyError::Version { found: version, supported: VERSION });
    }
    serde_json::from_str(text).map_err(|error| json_error(&error))
}

/// Says where the problem is and of which kind. The parser's own words may quote a value, and values may be secret.
fn json_error(error: &serde_json::Error) -> SealKeyError {
    let kind = match error.classify() {
        Category::Data => "a field is missing, unknown or of the wrong type",
        Category::Eof => "the text ends too early",
        Category::Syntax | Category::Io => "invalid JSON",
    };
    SealKeyError::Json { problem: format!("{kind} at line {} column {}", error.line(), error.column()) }
}
