//! A PostgreSQL database of `leasehold run --fence`: claims it, and checks that the command's connections will be fenced.
//!
//! The command gets its token by `PGOPTIONS` only. So this refuses a database in which no table needs the token, and a pooler in
//! front of it that does not pass startup options on.

use std::time::Duration;

use leasehold::{Code, Error};
use leasehold_core::token::Token;
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
            // A space after a backslash belongs to a value.
            Ok(options) => options.trim_start().to_owned(),
            Err(std::env::VarError::NotPresent) => String::new(),
            Err(std::env::VarError::NotUnicode(_)) => {
                return Err(Error::config("PGOPTIONS", "it is not UTF-8 text; correct or unset it").into());
            }
        };
        if ends_in_backslash(&callers) {
            let reason = "it ends in a backslash, which would join the token to its last value; remove the backslash";
            return Err(Error::config("PGOPTIONS", reason).into());
        }
        let config = config(self.url, self.source, std::env::var_os("PGPASSWORD"))?;
        let db = match self.connect(&config, &callers).await {
            Ok(db) => db,
            Err(error) => return Err(self.options_failed(&config, &callers, token, timeout, error).await),
        };
        self.require_protected(&fence_view(&db, fence_id).await?, fence_id)?;
        let options = read_options(&db, callers).await?;
        check_tokens(&options.tokens)?;
        let options = options.with_token(token);
        if let Err(error) = self.require_arrival(&config, &options, timeout).await {
            return Err(self.options_failed(&config, &options.callers, token, timeout, error).await);
        }
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

    /// The error of a connection with the caller's options: they are the cause if the token arrives without them.
    async fn options_failed(
        &self,
        config: &Config,
        callers: &str,
        token: &str,
        remaining: Duration,
        error: CommandError,
    ) -> CommandError {
        let tokens = token.to_owned();
        let alone = StartupOptions { tokens, ..StartupOptions::default() };
        if callers.is_empty() || self.require_arrival(config, &alone, remaining).await.is_err() {
            return error;
        }
        let reason = "a connection with these options fails or has no token, and one without them has it; correct or unset PGOPTIONS";
        Error::config("PGOPTIONS", reason).into()
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

/// Whether the last backslash of a list of options would escape what follows the list.
fn ends_in_backslash(options: &str) -> bool {
    let backslashes = options.bytes().rev().take_while(|byte| *byte == b'\\').count();
    backslashes % 2 == 1
}

/// Fails if a connection has a text in `leasehold.token` with which a protected table refuses each write.
fn check_tokens(tokens: &str) -> Result<(), CommandError> {
    let mut entries = tokens.split(' ').filter(|entry| !entry.is_empty());
    let Some(place) = entries.position(|entry| !is_token(entry)) else { return Ok(()) };
    let reason = format!(
        "entry {} of the setting leasehold.token is not a token, so each write would be refused; remove it from PGOPTIONS, or from \
         the role or the database that sets it",
        place + 1
    );
    Err(Error::config("PGOPTIONS", reason).into())
}

/// Whether a text is a token, with or without the stamp that follows a period.
fn is_token(text: &str) -> bool {
    Token::parse(text.split_once('.').map_or(text, |(token, _)| token)).is_ok()
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_backslash_of_options_escapes_what_follows_unless_it_is_escaped() {
        for (options, ends) in
            [("", false), ("-c a.b=c", false), ("\\", true), ("-c a.b=c\\", true), ("-c a.b=c\\\\", false)]
        {
            assert_eq!(ends_in_backslash(options), ends, "{options}");
        }
        assert!(!ends_in_backslash("-c a.b=c\\ "), "a value that ends in a space");
    }

    #[test]
    fn a_list_of_tokens_has_only_tokens() {
        let plain = "lh1-5e0bba640d80e73a-4897d23b-e7840c2a233cdd9b-w00000000-0248916401455104000-a3f04572";
        assert!(check_tokens("").is_ok() && check_tokens(&format!("{plain} {plain}")).is_ok());
        let wrong = check_tokens(&format!("{plain}  junk")).expect_err("junk").to_string();
        assert!(wrong.contains("entry 2 of the setting leasehold.token") && !wrong.contains("junk"), "{wrong}");
        assert!(check_tokens(&plain.replace("a3f04572", "a3f04573")).is_err(), "a wrong checksum");
    }
}
