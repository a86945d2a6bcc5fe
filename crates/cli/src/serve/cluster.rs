//! `leasehold serve --journal etcd://…`: one of several servers, of which one leads.

use std::path::PathBuf;

use leasehold::Error;
use leasehold_core::lease::Rung;
use leasehold_server::cluster::{self, Role};
use leasehold_server::driver::Stopped;
use leasehold_server::entrance::Entrance;
use leasehold_server::journal::etcd::Etcd;
use leasehold_server::server::Settings;

use super::kept::Kept;
use super::log::Level;
use super::reload::Reload;
use super::settings::{Chosen, Given};
use super::{Signals, ended, not_started, notify, settings, tell};
use crate::told::{Outcome, coded};

/// Serves as one of several.
pub async fn serve(flags: Given, config: Option<PathBuf>, chosen: Chosen, level: Level, lease: u32) -> Outcome {
    let Kept::Etcd { endpoints, prefix } = &chosen.journal else { unreachable!("this is the way of etcd") };
    if chosen.advertise.is_none() && chosen.listen.ip().is_unspecified() {
        let told =
            "advertise: this server listens on every address, and others are sent to it; say where they reach it";
        return Err(Error::config("advertise", told).into());
    }
    let entry = chosen.etcd.read(endpoints)?;
    let signals = Signals::listen();
    let settings = Settings { rung: Rung::Quorum, ..settings(&chosen) };
    let entrance = Entrance::bind(&settings).await.map_err(|why| not_started(&why))?;
    let address = chosen.advertise.as_ref().map_or_else(|| entrance.address.to_string(), ToString::to_string);
    let place = Etcd::new(entry, prefix, &address, &chosen.data).map_err(|why| coded(why.code(), &why))?;
    let place = place.with_quota(chosen.etcd.quota.0).accepting_restored(chosen.accept_restored).with_lease(lease);
    let (room, pace) = (entrance.room.clone(), entrance.pace.clone());
    let told = chosen.clone();
    let at = entrance.address;
    let mut role = move |role: Role, running: Option<&_>| match (role, running) {
        (Role::Leads, Some(running)) => {
            tell(running, &told);
            notify::ready(&format!("leading on {at}"));
        }
        _ => {
            tracing::info!("standing by on {at}, journal {}", told.journal);
            notify::ready(&format!("standing by on {at}"));
        }
    };
    let reload = Reload { flags, config, chosen, level, room, pace };
    let stopped = cluster::serve(&place, &entrance, &settings, &mut role, signals.asked_to_stop(reload)).await;
    match stopped.map_err(|why| not_started(&why))? {
        // Whoever is fenced stands by; it does not end.
        Stopped::Fenced | Stopped::SteppedDown => unreachable!("a server of a cluster stands by when it is deposed"),
        stopped => ended(stopped),
    }
}
