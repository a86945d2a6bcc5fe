//! SIGHUP: the settings are read again, and what can change while serving does.

use std::path::PathBuf;
use std::sync::Arc;

use leasehold_server::pace::Pace;
use leasehold_server::room::Room;

use super::log::Level;
use super::notify;
use super::settings::{Chosen, Given};

/// What changes without a restart.
const WHILE_SERVING: [&str; 3] = ["connections", "request_rate", "log_level"];

/// What is needed to read the settings again.
pub struct Reload {
    pub flags: Given,
    pub config: Option<PathBuf>,
    /// What holds now.
    pub chosen: Chosen,
    pub level: Level,
    pub room: Arc<Room>,
    pub pace: Arc<Pace>,
}

impl Reload {
    /// Reads the settings again. A file that says what it may not changes nothing.
    pub fn now(&mut self) {
        notify::reloading();
        match &self.config {
            None => tracing::info!("nothing to read again: there is no --config"),
            Some(path) => match Chosen::from(&self.flags, Some(path)) {
                Ok(read) => self.change(read),
                Err(error) => tracing::warn!("the settings stay as they are: {error}"),
            },
        }
        notify::ready("serving");
    }

    fn change(&mut self, read: Chosen) {
        let (before, now) = (self.chosen.told(), read.told());
        let changed = before.iter().zip(&now).filter(|(before, now)| before != now);
        let (at_once, later): (Vec<_>, Vec<_>) = changed.partition(|((key, _), _)| WHILE_SERVING.contains(key));
        // Done, and then told.
        self.room.resize(read.connections as usize);
        self.pace.set(read.request_rate);
        for ((key, before), (_, now)) in &at_once {
            tracing::info!("{key} is {now} now, and was {before}");
        }
        for ((key, before), (_, now)) in &later {
            tracing::warn!("{key} stays {before}; to make it {now}, restart");
        }
        if at_once.is_empty() && later.is_empty() {
            tracing::info!("the settings were read again; nothing changed");
        }
        // A lower level would keep the words about itself back.
        self.level.set(read.log_level);
        // What waits for a restart goes on being told as a difference.
        self.chosen = Chosen {
            connections: read.connections,
            request_rate: read.request_rate,
            log_level: read.log_level,
            ..self.chosen.clone()
        };
    }
}
