//! A server that speaks as S3 and DynamoDB do, started by the tests themselves.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// The version that the tests are known to hold with; `./test` installs the same.
const INSTALL: &str = "python3 -m venv target/moto && target/moto/bin/pip install 'moto[server]==5.2.5'";

static SERVER: OnceLock<Moto> = OnceLock::new();

pub struct Moto {
    pub address: SocketAddr,
    /// Its standard input stays open as long as this program lives, and it ends with that.
    _process: Child,
}

/// The one server of this program: stories take buckets and tables of their own.
pub fn server() -> &'static Moto {
    SERVER.get_or_init(Moto::start)
}

impl Moto {
    fn start() -> Self {
        let python = python();
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cloud/moto_server.py");
        let mut process =
            Command::new(&python).arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap_or_else(
                |error| panic!("{} does not start: {error}. Install moto: {INSTALL}", python.display()),
            );
        let mut line = String::new();
        let mut says = BufReader::new(process.stdout.take().expect("it was piped"));
        says.read_line(&mut line).expect("its words are text");
        let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("moto did not start. Install it: {INSTALL}"));
        Self { address: SocketAddr::from(([127, 0, 0, 1], port)), _process: process }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a bucket, which the store's own interface cannot.
    pub fn make_bucket(&self, name: &str) {
        let mut way = TcpStream::connect(self.address).expect("moto listens");
        let host = self.address;
        write!(way, "PUT /{name} HTTP/1.0\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n").expect("sent");
        let mut answer = String::new();
        way.read_to_string(&mut answer).expect("answered");
        assert!(answer.lines().next().is_some_and(|first| first.contains(" 200 ")), "{answer}");
    }
}

/// The interpreter in which moto is installed: `./test` makes it and tells where.
fn python() -> PathBuf {
    let told = std::env::var_os("LEASEHOLD_MOTO").map(PathBuf::from);
    let venv = told.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto"));
    let python = venv.join("bin/python");
    assert!(
        python.exists(),
        "moto is not installed in {}. Run ./test, or at the root of the repository: {INSTALL}",
        venv.display()
    );
    python
}
