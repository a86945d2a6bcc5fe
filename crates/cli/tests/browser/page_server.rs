//! The web server of the attacking page. Paths below `/v1/` and `/ui/` lead to the lease server, as a name does after DNS rebinding.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use leasehold_testkit::process::{TIMEOUT, TestProcess};

const PAGE: &str = include_str!("page.html");

/// A web server on a free port.
pub struct PageServer {
    pub port: u16,
    reports: Receiver<String>,
}

impl PageServer {
    /// Serves the page that attacks the server at this address.
    pub fn start(server: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let port = listener.local_addr().expect("a bound address").port();
        let (report, reports) = channel();
        let server = server.to_owned();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (report, server) = (report.clone(), server.clone());
                // The browser may close a connection at any time.
                std::thread::spawn(move || serve(stream, &server, &report).ok());
            }
        });
        Self { port, reports }
    }

    /// Waits for the report of the next page.
    pub fn next_report(&self, browser: &mut TestProcess) -> String {
        let deadline = Instant::now() + TIMEOUT;
        loop {
            match self.reports.recv_timeout(Duration::from_millis(100)) {
                Ok(report) => return report,
                Err(RecvTimeoutError::Disconnected) => panic!("the page server has ended"),
                Err(RecvTimeoutError::Timeout) => {}
            }
            let ended = browser.try_wait();
            assert!(ended.is_none(), "the browser ended: {:?}", browser.stderr().so_far());
            assert!(Instant::now() < deadline, "no report: {:?}", browser.stderr().so_far());
        }
    }
}

/// Serves one request.
fn serve(stream: TcpStream, server: &str, report: &Sender<String>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head)? == 0 {
            return Ok(());
        }
    }
    let length = head.to_lowercase().lines().find_map(|line| line.strip_prefix("content-length: ")?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    reader.read_exact(&mut body)?;
    let path = head.split(' ').nth(1).unwrap_or_default();
    if path.starts_with("/v1/") || path.starts_with("/ui/") {
        return rebind(stream, server, &head, &body);
    }
    let page = match path {
        "/" => PAGE.replace("{{SERVER_PORT}}", server.rsplit(':').next().unwrap_or_default()),
        "/report" => {
            // Fails if the test has ended.
            let _ = report.send(String::from_utf8_lossy(&body).into_owned());
            String::new()
        }
        _ => String::new(),
    };
    write_response(&stream, &page)
}

fn write_response(mut stream: &TcpStream, page: &str) -> std::io::Result<()> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html; charset=utf-8\r\nconnection: close\r\n";
    write!(stream, "{head}content-length: {}\r\n\r\n{page}", page.len())
}

/// Passes a request on unchanged, except that the connection ends with it.
fn rebind(mut browser: TcpStream, server: &str, head: &str, body: &[u8]) -> std::io::Result<()> {
    let mut server = TcpStream::connect(server)?;
    let (line, rest) = head.split_once("\r\n").unwrap_or_default();
    let rest: String = rest
        .lines()
        .filter(|line| !line.to_lowercase().starts_with("connection:"))
        .map(|line| format!("{line}\r\n"))
        .collect();
    write!(server, "{line}\r\nconnection: close\r\n{rest}")?;
    server.write_all(body)?;
    std::io::copy(&mut server, &mut browser).map(drop)
}
