//! `postgres://USER@HOST/DATABASE`: a PostgreSQL database. Without TLS. For an address from the operator, the password can also
//! be in `PGPASSWORD`.

use std::error::Error;
use std::ffi::OsString;
use std::time::Duration;

use leasehold_core::token::{Incarnation, Number};
use leasehold_fence::postgres::{Fence, ProbedWrite, StampKey, install, list_marks};
use leasehold_fence::{FenceId, FenceRefusal, MarkInfo, MarkLoss};
use tokio_postgres::config::Host;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Config, NoTls};

use super::address::AddressSource;
use super::probe::{TableFinding, TokenProbe, WriteProbe, token_probe};
use super::{fence_error, printable, token};
use crate::output::{CommandError, error_with_code};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// SQLSTATE of a probe's write that passed.
const ACCEPTED: &str = "LH000";
/// Remaining lease time that a probe's transaction declares.
const PROBE_REMAINING: Duration = Duration::from_secs(5);

async fn open(url: &str, source: AddressSource) -> Result<Client, CommandError> {
    let config = config(url, source, std::env::var_os("PGPASSWORD"))?;
    let (client, connection) = config.connect(NoTls).await.map_err(|error| connect_failed(&error))?;
    tokio::spawn(connection);
    Ok(client)
}

/// The connection for an address. Neither the password nor the user name of the operator is sent to an address from a charter.
pub(super) fn config(url: &str, source: AddressSource, password: Option<OsString>) -> Result<Config, CommandError> {
    let mut config: Config = url.parse().map_err(|_| {
        // The invalid address may contain a password, so the message does not repeat anything of it.
        error_with_code("INVALID_ARGUMENT", &"invalid PostgreSQL address; use postgres://USER@HOST/DATABASE")
    })?;
    match source {
        AddressSource::Operator => {
            if let (None, Some(password)) = (config.get_password(), password) {
                config.password(password.as_encoded_bytes());
            }
        }
        AddressSource::Charter => ensure_anonymous(&config)?,
    }
    config.connect_timeout(CONNECT_TIMEOUT);
    Ok(config)
}

/// Fails if the connection would identify the operator by the name of the account, or by the account itself.
fn ensure_anonymous(config: &Config) -> Result<(), CommandError> {
    let problem = if config.get_hosts().iter().any(|host| !matches!(host, Host::Tcp(_))) {
        "is a local socket, which identifies you by your account"
    } else if config.get_user().is_none() {
        "names no user"
    } else {
        return Ok(());
    };
    let next_step = "pass --target NAME=postgres://USER@HOST/DATABASE";
    Err(error_with_code("INVALID_ARGUMENT", &format!("the address in the charter {problem}; {next_step}")))
}

pub(super) fn connect_failed(error: &tokio_postgres::Error) -> CommandError {
    let cause = error.source().map(|cause| format!(": {cause}")).unwrap_or_default();
    let message = printable(&format!("cannot connect to the database: {error}{cause}"));
    error_with_code("UNAVAILABLE", &format!("{message}; check the address and its password, and that the server runs"))
}

pub(super) fn failed(error: tokio_postgres::Error) -> CommandError {
    fence_error(&error.into())
}

fn fence(fence_id: &FenceId) -> Fence {
    Fence::new(fence_id)
}

pub async fn marks(url: &str, source: AddressSource) -> Result<Vec<MarkInfo>, CommandError> {
    let db = open(url, source).await?;
    let installed = db.query_one("SELECT to_regclass('leasehold.fence') IS NOT NULL", &[]).await.map_err(failed)?;
    if !installed.get::<_, bool>(0) {
        return Err(fence_error(&FenceRefusal::MarkLost(MarkLoss::Missing).into()));
    }
    list_marks(&db).await.map_err(|error| fence_error(&error))
}

pub async fn arm(url: &str, source: AddressSource, fence_id: &FenceId) -> Result<(), CommandError> {
    let db = open(url, source).await?;
    install(&db).await.map_err(|error| fence_error(&error))?;
    fence(fence_id).arm(&db).await.map_err(|error| fence_error(&error))
}

pub async fn protect(url: &str, source: AddressSource, fence_id: &FenceId, table: &str) -> Result<(), CommandError> {
    fence(fence_id).protect(&open(url, source).await?, table).await.map_err(|error| fence_error(&error))
}

pub async fn rearm(url: &str, source: AddressSource, fence_id: &FenceId, floor: Number) -> Result<(), CommandError> {
    fence(fence_id).rearm(&open(url, source).await?, floor).await.map_err(|error| fence_error(&error))
}

pub async fn declare_lost(url: &str, source: AddressSource, fence_id: &FenceId) -> Result<(), CommandError> {
    fence(fence_id).declare_lost(&open(url, source).await?).await.map_err(|error| fence_error(&error))
}

pub async fn adopt(
    url: &str,
    source: AddressSource,
    fence_id: &FenceId,
    incarnation: Incarnation,
) -> Result<(), CommandError> {
    fence(fence_id).adopt(&open(url, source).await?, incarnation).await.map_err(|error| fence_error(&error))
}

pub async fn seal(url: &str, source: AddressSource, fence_id: &FenceId, key: &StampKey) -> Result<(), CommandError> {
    let db = open(url, source).await?;
    fence(fence_id).seal(&db, key).await.map(drop).map_err(|error| fence_error(&error))
}

/// Probes the fence functions in the server, in a transaction that is rolled back.
pub async fn probe(
    url: &str,
    source: AddressSource,
    fence_id: &FenceId,
    stale: &str,
) -> Result<TokenProbe, CommandError> {
    let mut db = open(url, source).await?;
    let tx = db.transaction().await.map_err(failed)?;
    let verdict = fence(fence_id).admit(&tx, stale, PROBE_REMAINING).await;
    tx.rollback().await.map_err(failed)?;
    token_probe(verdict)
}

/// Attempts a write without a token to each protected table, and compares them with the tables that the address lists.
pub async fn probe_writes(
    url: &str,
    source: AddressSource,
    fence_id: &FenceId,
    tables: &[String],
) -> Result<WriteProbe, CommandError> {
    let mut db = open(url, source).await?;
    // The reply to the token itself was probed before.
    let stale = token(fence_id, Number::FIRST, Incarnation(0));
    let report = fence(fence_id).probe(&mut db, stale).await.map_err(|error| fence_error(&error))?;
    let mut findings = Vec::new();
    let mut add = |table: &str, finding: String| {
        findings.push(TableFinding { table: printable(table), finding: printable(&finding) });
    };
    for write in report.writes.iter().filter(|write| !write.refused) {
        let unclear = || format!("a write without a token failed for another reason: {}", write.message);
        let accepted = || "a write without a token was accepted".to_owned();
        add(&write.table, if write.sqlstate == ACCEPTED { accepted() } else { unclear() });
    }
    // The database has guards of its own, which matter only to protected tables.
    for guard in report.guards.iter().filter(|_| report.is_forced()) {
        if let Some(problem) = &guard.problem {
            add(&guard.object, format!("{}: {problem}", guard.guard));
        }
    }
    let protected: Vec<String> = report.writes.iter().map(|write| write.table.clone()).collect();
    for table in tables {
        match find_table(&db, table, &protected).await? {
            TableLookup::Protected => {}
            TableLookup::Unprotected => add(table, "not protected by this resource".to_owned()),
            TableLookup::Missing => add(table, "no such table".to_owned()),
        }
    }
    let is_open = |write: &&ProbedWrite| findings.iter().any(|at| at.table == write.table);
    let refused = report.writes.iter().filter(|write| !is_open(write)).map(|write| write.table.clone()).collect();
    Ok(WriteProbe::Attempted { refused, findings })
}

/// Whether a table of an address is one of those that the fence protects.
enum TableLookup {
    Protected,
    Unprotected,
    Missing,
}

/// Compares tables by their identity, because one table has several spellings.
async fn find_table(db: &Client, table: &str, protected: &[String]) -> Result<TableLookup, CommandError> {
    let sql = "SELECT to_regclass($1) IS NOT NULL, to_regclass($1) IN (SELECT to_regclass(p) FROM unnest($2) AS p)";
    let params: [(&(dyn ToSql + Sync), Type); 2] = [(&table, Type::TEXT), (&protected, Type::TEXT_ARRAY)];
    let rows = db.query_typed(sql, &params).await.map_err(failed)?;
    let known = |column: usize| rows.first().and_then(|row| row.get::<_, Option<bool>>(column)).unwrap_or(false);
    Ok(match (known(0), known(1)) {
        (_, true) => TableLookup::Protected,
        (true, false) => TableLookup::Unprotected,
        (false, false) => TableLookup::Missing,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn password(url: &str, source: AddressSource) -> Option<Vec<u8>> {
        config(url, source, Some("hunter2".into())).expect("valid").get_password().map(<[u8]>::to_vec)
    }

    #[test]
    fn only_an_address_of_the_operator_gets_the_password_of_the_environment() {
        let url = "postgres://app@db/shop";
        assert_eq!(password(url, AddressSource::Operator), Some(b"hunter2".to_vec()));
        assert_eq!(password(url, AddressSource::Charter), None);
        assert_eq!(password("postgres://app:own@db/shop", AddressSource::Operator), Some(b"own".to_vec()));
    }

    #[test]
    fn the_name_of_the_operators_account_is_not_sent_to_an_address_of_a_charter() {
        let refused = config("postgres://db/shop", AddressSource::Charter, None).expect_err("no user");
        assert!(format!("{refused:?}").contains("names no user"), "{refused:?}");
        assert!(config("postgres://db/shop", AddressSource::Operator, None).is_ok());
        for socket in ["postgres://app@%2Frun%2Fpostgresql/shop", "postgres://app@db/shop?host=/run/postgresql"] {
            let refused = config(socket, AddressSource::Charter, None).expect_err("a socket");
            assert!(format!("{refused:?}").contains("local socket"), "{refused:?}");
            assert!(config(socket, AddressSource::Operator, None).is_ok());
        }
    }

    #[test]
    fn the_error_for_an_invalid_address_repeats_nothing_of_it() {
        for url in
            ["postgres://app:hun/ter2@db/shop", "postgres://app@db/shop?hunter2=x", "postgres://app:hunter2@db:x/s"]
        {
            let refused = format!("{:?}", config(url, AddressSource::Operator, None).err());
            assert!(!refused.contains("hun") && !refused.contains("ter2"), "{refused}");
        }
    }
}
