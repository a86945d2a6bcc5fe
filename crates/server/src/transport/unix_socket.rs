//! The unix socket of a server: its file, and the user id of each peer.

use std::fmt;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, fchmod};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, listen, socket_with, sockopt,
};
use tokio::net::{UnixListener, UnixStream};

use crate::identity::{Identity, Via};

/// Longest path of a socket, without the byte that ends it.
pub const MAX_PATH: usize = 107;
/// The owner and its group may connect.
const MODE: u32 = 0o660;
/// Connections that wait to be accepted.
const BACKLOG: i32 = 1_024;

/// A socket cannot be used.
#[derive(Debug)]
pub enum SocketError {
    /// The path is longer than the operating system allows.
    TooLong {
        /// The path.
        path: PathBuf,
    },
    /// Something else has this path.
    NotSocket {
        /// The path.
        path: PathBuf,
    },
    /// Another server listens on it.
    InUse {
        /// The path.
        path: PathBuf,
    },
    /// The operating system refused it.
    Failed {
        /// The path.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
}

impl fmt::Display for SocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong { path } => write!(
                f,
                "socket: {} is longer than {MAX_PATH} bytes; choose a shorter path, or \"\" for no socket",
                path.display()
            ),
            Self::NotSocket { path } => {
                write!(f, "socket: {} exists and is not a socket; choose another path", path.display())
            }
            Self::InUse { path } => {
                write!(f, "socket: another process listens on {}; stop it, or choose another path", path.display())
            }
            Self::Failed { path, error } => {
                write!(
                    f,
                    "socket: cannot listen on {}: {error}; choose another path, or \"\" for no socket",
                    path.display()
                )
            }
        }
    }
}

impl std::error::Error for SocketError {}

/// A listening unix socket. Its file is removed with it.
#[derive(Debug)]
pub struct SocketListener {
    listener: UnixListener,
    path: PathBuf,
    /// Device and inode of the file, so that the file of another server is not removed.
    file: (u64, u64),
}

/// Fails if no server can listen on this path.
pub fn check_path(path: &Path) -> Result<(), SocketError> {
    if path.as_os_str().len() > MAX_PATH {
        return Err(SocketError::TooLong { path: path.to_owned() });
    }
    match std::fs::symlink_metadata(path) {
        Ok(known) if !known.file_type().is_socket() => Err(SocketError::NotSocket { path: path.to_owned() }),
        _ => Ok(()),
    }
}

impl SocketListener {
    /// Listens on a path. The file that a dead server left is replaced.
    pub fn bind(path: &Path) -> Result<Self, SocketError> {
        check_path(path)?;
        let failed = |error: io::Error| SocketError::Failed { path: path.to_owned(), error };
        match connect_now(path) {
            // A process that is paused may have a full backlog.
            Ok(()) | Err(Errno::AGAIN) => return Err(SocketError::InUse { path: path.to_owned() }),
            // No process listens on it.
            Err(Errno::CONNREFUSED) => std::fs::remove_file(path).map_err(failed)?,
            Err(Errno::NOENT) => {}
            Err(error) => return Err(failed(error.into())),
        }
        let bound = listen_on(path).map_err(failed)?;
        let known = std::fs::symlink_metadata(path).map_err(failed)?;
        let listener = UnixListener::from_std(bound).map_err(failed)?;
        Ok(Self { listener, path: path.to_owned(), file: (known.dev(), known.ino()) })
    }

    /// Accepts a connection.
    pub async fn accept(&self) -> io::Result<UnixStream> {
        self.listener.accept().await.map(|(stream, _)| stream)
    }

    /// The path of the socket.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

/// Connects without waiting.
fn connect_now(path: &Path) -> Result<(), Errno> {
    connect(&unix_socket()?, &SocketAddrUnix::new(path)?)
}

fn unix_socket() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK, None)
}

fn listen_on(path: &Path) -> io::Result<StdListener> {
    let socket = unix_socket()?;
    // Linux gives the file the mode of the socket, so that it is never open to others, whatever the umask.
    fchmod(&socket, Mode::from_raw_mode(MODE))?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The umask may have removed the permissions of the group.
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(MODE))?;
    listen(&socket, BACKLOG)?;
    Ok(StdListener::from(socket))
}

impl Drop for SocketListener {
    fn drop(&mut self) {
        let is_own = std::fs::symlink_metadata(&self.path).is_ok_and(|known| (known.dev(), known.ino()) == self.file);
        if is_own {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// The user id of a peer and its identity: the user that opened the connection, as the kernel reports it.
pub fn peer_identity(stream: &UnixStream) -> io::Result<(u32, Identity)> {
    let uid = sockopt::socket_peercred(stream)?.uid.as_raw();
    let principal = format!("uid:{uid}").into();
    Ok((uid, Identity { principal, via: Via::Uid, credential: "".into(), peer: None, not_after: None }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_has_mode_0660_names_its_peer_and_is_removed_with_its_listener() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        let listener = SocketListener::bind(&path).expect("the path is free");
        let mode = std::fs::metadata(&path).expect("the file exists").mode() & 0o7777;
        assert_eq!(mode, 0o660);
        let (client, server) = tokio::join!(UnixStream::connect(&path), listener.accept());
        client.expect("the server listens");
        let (_, identity) = peer_identity(&server.expect("a connection")).expect("the kernel knows the peer");
        assert_eq!(*identity.principal, format!("uid:{}", rustix::process::geteuid().as_raw()));
        drop(listener);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_stale_file_is_replaced_and_a_live_server_keeps_its_socket() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("socket");
        drop(StdListener::bind(&path).expect("the path is free"));
        assert!(path.exists(), "the standard library leaves the file, as a dead server does");
        let listener = SocketListener::bind(&path).expect("no process listens");
        assert!(matches!(SocketListener::bind(&path), Err(SocketError::InUse { .. })));
        assert!(path.exists(), "the file of the live server stays");
        // Another server has taken the path over: its file is not removed.
        std::fs::remove_file(&path).expect("the file exists");
        let other = SocketListener::bind(&path).expect("the path is free");
        drop(listener);
        assert!(path.exists());
        drop(other);
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_long_path_and_another_file_are_refused() {
        let directory = tempfile::tempdir().expect("a directory");
        let long = directory.path().join("x".repeat(MAX_PATH));
        assert!(matches!(SocketListener::bind(&long), Err(SocketError::TooLong { .. })));
        let file = directory.path().join("file");
        std::fs::write(&file, "data").expect("the file is writable");
        assert!(matches!(SocketListener::bind(&file), Err(SocketError::NotSocket { .. })));
        assert_eq!(std::fs::read(&file).expect("the file is there"), b"data");
    }
}
