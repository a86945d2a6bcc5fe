//! A separate network namespace for a holder, where root can create one, with a link that the kernel takes down and up.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};

/// The link between a holder's network namespace and ours. It disappears with the holder's process.
#[derive(Debug)]
pub struct NamespaceLink {
    name: String,
    /// Our end of the link.
    pub ours: IpAddr,
}

impl NamespaceLink {
    /// Connects the network namespace of a process with ours.
    pub fn to(pid: u32) -> io::Result<Self> {
        let [_, _, high, low] = std::process::id().to_be_bytes();
        let (ours, theirs) = (Ipv4Addr::new(10, 64 + high % 128, low, 1), Ipv4Addr::new(10, 64 + high % 128, low, 2));
        let name = format!("lh{pid}");
        let pid = pid.to_string();
        ip(&["link", "add", &name, "type", "veth", "peer", "name", "eth0", "netns", &pid])?;
        ip(&["address", "add", &format!("{ours}/24"), "dev", &name])?;
        ip(&["link", "set", &name, "up"])?;
        let inside = |words: &[&str]| run(Command::new("nsenter").args(["-t", &pid, "-n", "ip"]).args(words));
        inside(&["address", "add", &format!("{theirs}/24"), "dev", "eth0"])?;
        inside(&["link", "set", "eth0", "up"])?;
        inside(&["link", "set", "lo", "up"])?;
        Ok(Self { name, ours: ours.into() })
    }

    /// Takes the link up or down.
    pub fn set(&self, up: bool) {
        // If the holder's process ended, the link is gone, which is as good as down.
        let _ = ip(&["link", "set", &self.name, if up { "up" } else { "down" }]);
    }
}

/// Whether network namespaces can be created here.
pub fn possible() -> Result<(), String> {
    let tried = run(Command::new("unshare").args(["--net", "ip", "link", "add", "lh", "type", "veth"]));
    tried.map_err(|error| error.to_string())
}

fn ip(words: &[&str]) -> io::Result<()> {
    run(Command::new("ip").args(words))
}

fn run(command: &mut Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}
