//! A moto server, which emulates S3 and DynamoDB.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;

/// How to install the version that `./test` uses.
const INSTALL: &str = "python3 -m venv target/moto && target/moto/bin/pip install 'moto[server]==5.2.5'";

static SERVER: OnceLock<Moto> = OnceLock::new();

pub struct Moto {
    pub address: SocketAddr,
    /// The server ends when its standard input is closed, at the end of this program.
    _process: Child,
}

/// The server of this program. Each test uses its own buckets and tables.
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
        let mut output = BufReader::new(process.stdout.take().expect("it was piped"));
        output.read_line(&mut line).expect("text");
        let port: u16 = line.trim().parse().unwrap_or_else(|_| panic!("moto did not start. Install it: {INSTALL}"));
        Self { address: SocketAddr::from(([127, 0, 0, 1], port)), _process: process }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a bucket, which `ObjectStore` cannot.
    pub fn create_bucket(&self, name: &str) {
        let mut connection = TcpStream::connect(self.address).expect("moto listens");
        let host = self.address;
        write!(connection, "PUT /{name} HTTP/1.0\r\nHost: {host}\r\nContent-Length: 0\r\n\r\n").expect("sent");
        let mut response = String::new();
        connection.read_to_string(&mut response).expect("a response");
        assert!(response.lines().next().is_some_and(|first| first.contains(" 200 ")), "{response}");
    }
}

/// The Python interpreter with moto. `./test` installs it and sets LEASEHOLD_MOTO.
fn python() -> PathBuf {
    let configured = std::env::var_os("LEASEHOLD_MOTO").map(PathBuf::from);
    let venv = configured.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/moto"));
    let python = venv.join("bin/python");
    assert!(
        python.exists(),
        "moto is not installed in {}. Run ./test, or at the root of the repository: {INSTALL}",
        venv.display()
    );
    python
}
