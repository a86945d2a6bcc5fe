//! A PostgreSQL database of `leasehold run --fence`: claims it, and checks that the command's connections will be fenced.
//!
//! The command gets its token by `PGOPTIONS` only. So this refuses a database in which no table needs the token, and a pooler in
//! front of it that does not pass startup options on.

use std::time::Duration;

use leasehold::{Code, Error};
use leasehold_fence::FenceId;
use leasehold_fence::postgres::Fence;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls};

use super::address::AddressSource;
use super::postgres::{config, connect_failed, failed};
use super::startup_options::StartupOptions;
use super::{fence_error, printable};
use crate::output::CommandError;

/// SQLSTATE with which a pooler refuses startup options.
const PROTOCOL_VIOLATION: &str = "08P01";

/// Fails if the address is invalid, or overrides `PGOPTIONS`.
pub fn check_address(url: &str, source: AddressSource) -> Result<(), Error> {
    let config = match config(url, source, None) {
        Ok(config) => config,
        Err(CommandError::Coded(error)) => return Err(error),
        Err(other) => return Err(Error::new(Code::InvalidArgument, other.to_string())),
    };
    if config.get_options().is_some() {
        let message =
            "the address has options, which override PGOPTIONS in most programs; set them in PGOPTIONS instead";
        return Err(Error::new(Code::InvalidArgument, message).with_next_step("Move the options to PGOPTIONS."));
    }
    Ok(())
}

/// The database of a command.
pub struct CommandDatabase<'a> {
    pub url: &'a str,
    pub source: AddressSource,
    /// The address without its password.
    pub shown: String,
}

/// What a role sees of the fence of a resource.
struct FenceView {
    is_installed: bool,
    is_usable: bool,
    reads_connection_tokens: bool,
    protects_tables: bool,
}

impl CommandDatabase<'_> {
    /// Checks the database and claims it. Returns the options of the command's connections.
    pub async fn claim(
        &self,
        fence_id: &FenceId,
        token: &str,
        timeout: Duration,
    ) -> Result<StartupOptions, CommandError> {
        let callers = match std::env::var("PGOPTIONS") {
            Ok(options) => options.trim().to_owned(),
            Err(std::env::VarError::NotPresent) => String::new(),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Error::config("PGOPTIONS", "it is not UTF-8 text; correct or unset it").into());
            }
        };
        let config = config(self.url, self.source, std::env::var_os("PGPASSWORD"))?;
        let db = self.connect(&config, &callers).await?;
        self.require_protected(&fence_view(&db, fence_id).await?, fence_id)?;
        let options = read_options(&db, callers).await?.with_token(token);
        self.require_arrival(&config, &options, timeout).await?;
        let claimed = Fence::new(fence_id).with_claim_timeout(timeout).claim(&db, token).await;
        claimed.map_err(|error| self.claim_failed(&error))?;
        Ok(options)
    }

    async fn connect(&self, config: &Config, options: &str) -> Result<Client, CommandError> {
        let mut config = config.clone();
        if !options.is_empty() {
            config.options(options);
        }
        match config.connect(NoTls).await {
            Ok((client, connection)) => {
                tokio::spawn(connection);
                Ok(client)
            }
            Err(error) if error.code().is_some_and(|code| code.code() == PROTOCOL_VIOLATION) => {
                let reason = error.as_db_error().map_or_else(|| error.to_string(), |error| error.message().to_owned());
                Err(self.options_lost(&printable(&reason)))
            }
            Err(error) => Err(connect_failed(&error)),
        }
    }

    /// Fails unless an unchanged program is fenced in this database.
    fn require_protected(&self, view: &FenceView, fence_id: &FenceId) -> Result<(), CommandError> {
        let (shown, resource) = (&self.shown, fence_id.resource());
        let command = |verb: &str, rest: &str| {
            let slot = if fence_id.slot() == 0 { String::new() } else { format!(" --slot {}", fence_id.slot()) };
            format!("leasehold fence {verb} {shown} --resource {resource}{slot}{rest}")
        };
        let (code, problem, next_step) = if !view.is_installed {
            (Code::NotFound, format!("{shown} has no fence for {resource}"), command("arm", ""))
        } else if !view.is_usable {
            let problem = format!("this role may not use the fence of {shown}");
            (Code::PermissionDenied, problem, "GRANT USAGE ON SCHEMA leasehold TO <role>".to_owned())
        } else if !view.reads_connection_tokens {
            let problem = format!("the fence of {shown} is too old to read the token of a connection");
            (Code::UnsupportedVersion, problem, command("arm", ""))
        } else if !view.protects_tables {
            let problem =
                format!("no table of {shown} is protected by {resource}, so no late write of the command is refused");
            (Code::NotFound, problem, command("protect", " --table TABLE"))
        } else {
            return Ok(());
        };
        Err(Error::new(code, format!("{problem}; run: {next_step}")).with_next_step(&next_step).into())
    }

    /// Fails unless a connection with these options has the token: a pooler may refuse options or ignore them.
    async fn require_arrival(
        &self,
        config: &Config,
        options: &StartupOptions,
        remaining: Duration,
    ) -> Result<(), CommandError> {
        let db = self.connect(config, &options.text(remaining)).await?;
        let arrived = read_options(&db, String::new()).await?.tokens;
        if arrived == options.tokens {
            Ok(())
        } else {
            Err(self.options_lost("the setting leasehold.token did not arrive"))
        }
    }

    /// The error for a pooler that does not pass options on.
    fn options_lost(&self, reason: &str) -> CommandError {
        let next_step = "connect to the database itself, or call leasehold.admit in each transaction of the program";
        let message = format!(
            "{} does not accept startup options ({reason}): it is a pooler such as PgBouncer, which gives one connection to \
             several programs, so the token of a connection means nothing there; {next_step}",
            self.shown
        );
        Error::config("fence", message).with_next_step(next_step).into()
    }

    fn claim_failed(&self, error: &leasehold_fence::Error) -> CommandError {
        let needs_stamp = error.refusal().is_some_and(|refusal| matches!(refusal.reason(), "unsealed" | "stamp"));
        if !needs_stamp {
            return fence_error(error);
        }
        let next_step = "name the target as its charter does, and give the servers its stamp key: --fence NAME=ADDRESS";
        let message = format!("the fence of {} is sealed and needs a stamped token; {next_step}", self.shown);
        Error::new(Code::TokenInvalid, message).with_next_step(next_step).into()
    }
}

/// Reads what a role may see of a fence: catalogs only, because the fence's own tables are not for application roles.
async fn fence_view(db: &Client, fence_id: &FenceId) -> Result<FenceView, CommandError> {
    let sql = "SELECT n.id IS NOT NULL, coalesce(has_schema_privilege(n.id, 'USAGE'), false),
        EXISTS (SELECT FROM pg_proc AS p WHERE p.pronamespace = n.id AND p.proname = 'connection_token'),
        EXISTS (SELECT FROM pg_trigger AS t JOIN pg_proc AS p ON p.oid = t.tgfoid AND p.pronamespace = n.id
          WHERE t.tgname = 'leasehold_guard' AND t.tgenabled = 'A' AND p.proname = 'guard_' || to_hex(hashtextextended($1, 1818780001 + $2)))
      FROM (SELECT to_regnamespace('leasehold')::oid) AS n(id)";
    let params: [(&(dyn ToSql + Sync), Type); 2] =
        [(&fence_id.resource(), Type::TEXT), (&i64::from(fence_id.slot()), Type::INT8)];
    let row = db.query_typed(sql, &params).await.map_err(failed)?.remove(0);
    Ok(FenceView {
        is_installed: row.get(0),
        is_usable: row.get(1),
        reads_connection_tokens: row.get(2),
        protects_tables: row.get(3),
    })
}

/// Reads the settings with which this connection started.
async fn read_options(db: &Client, callers: String) -> Result<StartupOptions, CommandError> {
    let sql = "SELECT coalesce(current_setting('leasehold.token', true), ''),
        (SELECT setting::bigint FROM pg_settings WHERE name = 'statement_timeout'),
        (SELECT setting::bigint FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout')";
    let row = db.query_typed(sql, &[]).await.map_err(failed)?.remove(0);
    let timeout = |column: usize| u64::try_from(row.get::<_, i64>(column)).unwrap_or(0);
    Ok(StartupOptions { callers, tokens: row.get(0), statement_timeout: timeout(1), idle_timeout: timeout(2) })
}
