//! Those who watch: every event with its resource, told when it is durable.

use std::sync::atomic::{AtomicBool, Ordering};

use leasehold_core::command::{Event, Notice};
use leasehold_core::grantor::Grantor;
use tokio::sync::broadcast;

/// Events that one watcher may leave unread; then it is told so and hears no more.
pub const UNREAD: usize = 1 << 14;

/// Something that happened, and where.
#[derive(Clone, Debug)]
pub struct Seen {
    /// The resource, where there is one.
    pub resource: String,
    /// The holder, where there is one.
    pub holder: String,
    /// What.
    pub event: Event,
    /// The journal position it depends on.
    pub position: u64,
}

/// What those who watch hear.
#[derive(Clone, Debug)]
pub enum Heard {
    /// Something happened.
    Seen(Seen),
    /// Nothing more will be told: the server stops.
    Over,
}

/// Everybody who watches.
pub struct Watchers {
    events: broadcast::Sender<Heard>,
    over: AtomicBool,
}

impl Default for Watchers {
    fn default() -> Self {
        Self { events: broadcast::Sender::new(UNREAD), over: AtomicBool::new(false) }
    }
}

impl Watchers {
    /// Watches from now on; nobody does once it is over.
    pub fn watch(&self) -> Option<broadcast::Receiver<Heard>> {
        let events = self.events.subscribe();
        // Whoever comes between the flag and the last word hears one of them.
        (!self.over.load(Ordering::SeqCst)).then_some(events)
    }

    /// Tells everybody that nothing more will be told.
    pub fn close(&self) {
        self.over.store(true, Ordering::SeqCst);
        // Nobody may be there to hear it.
        let _ = self.events.send(Heard::Over);
    }

    /// Whether anybody watches.
    pub fn any(&self) -> bool {
        self.events.receiver_count() > 0
    }

    /// Tells what a turn brought. Names are looked up only if somebody watches.
    pub fn tell(&self, notices: &[Notice], grantor: &Grantor, position: u64) {
        if notices.is_empty() || self.events.receiver_count() == 0 {
            return;
        }
        let ends = notices.iter().filter(|notice| matches!(notice.event, Event::Ended { .. })).count();
        let mut ended = grantor.last_ended(ends).into_iter();
        for notice in notices {
            let (resource, holder) = match &notice.event {
                // A session hears of its grant too; those who watch hear it once.
                Event::Granted { .. } if notice.session.is_some() => continue,
                Event::Granted { lease, .. } | Event::Draining { lease, .. } | Event::Drained { lease } => {
                    match grantor.lease(*lease) {
                        Some(view) => (view.resource, view.holder),
                        None => continue,
                    }
                }
                Event::Ended { .. } => match ended.next() {
                    Some(ended) => (ended.resource, ended.holder),
                    None => continue,
                },
                Event::Zombie(zombie) => (zombie.resource.clone(), zombie.holder.clone()),
                _ => (String::new(), String::new()),
            };
            let seen = Seen { resource, holder, event: notice.event.clone(), position };
            let _ = self.events.send(Heard::Seen(seen));
        }
    }
}
