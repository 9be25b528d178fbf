//! Connections, and the tables of the queue of a site.

use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Client;

use super::address::Address;
use super::error::SiteError;

/// Version of the tables, in `sabul.version`.
const VERSION: i32 = 1;

/// Settings of each connection. A client whose machine disappears within a transaction does not lock rows for
/// longer. A commit is on the disk before its answer, also where the administrator chose otherwise.
const SESSION: &str = "
SET statement_timeout = '10s';
SET lock_timeout = '10s';
SET idle_in_transaction_session_timeout = '20s';
SELECT set_config('synchronous_commit', 'on', false) WHERE current_setting('synchronous_commit') IN ('off', 'local');
";

/// Ours: key of the lock for the creation of the tables, \"sabul\" in ASCII.
const CREATION_LOCK: &str = "SELECT pg_advisory_xact_lock(495806477676)";

/// `is_held`: the lease lasts, and after a restart of the database for its full length from the start. The holders
/// could not renew their leases meanwhile.
const TABLES: &str = "
CREATE SCHEMA IF NOT EXISTS sabul;
CREATE TABLE sabul.version (version integer NOT NULL);
CREATE FUNCTION sabul.now_ms() RETURNS bigint LANGUAGE sql VOLATILE AS
    'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint';
CREATE FUNCTION sabul.lease_end_ms(until_ms bigint, length_ms bigint) RETURNS bigint LANGUAGE sql STABLE AS
    'SELECT greatest($1, (extract(epoch FROM pg_postmaster_start_time()) * 1000)::bigint + $2)';
CREATE TABLE sabul.job (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    added_token text NOT NULL UNIQUE,
    state text NOT NULL,
    request text,
    priority integer NOT NULL,
    name text,
    words bytea NOT NULL,
    directory bytea NOT NULL,
    environment bytea NOT NULL,
    hook_command bytea,
    retry_for_ms bigint NOT NULL,
    added_ms bigint NOT NULL DEFAULT sabul.now_ms(),
    not_before_ms bigint NOT NULL,
    due_ms bigint NOT NULL DEFAULT 0,
    started_ms bigint,
    ended_ms bigint,
    failing_since_ms bigint,
    attempts bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL DEFAULT 0,
    bytes bigint NOT NULL DEFAULT 0,
    bytes_total bigint,
    goodput_bps double precision NOT NULL DEFAULT 0,
    code integer,
    message text,
    hook integer NOT NULL DEFAULT 0,
    worker text,
    worker_id text,
    token text,
    last_token text,
    lease_until_ms bigint NOT NULL DEFAULT 0,
    lease_ms bigint NOT NULL DEFAULT 0
);
CREATE FUNCTION sabul.is_held(job sabul.job) RETURNS boolean LANGUAGE sql VOLATILE AS
    'SELECT $1.token IS NOT NULL AND sabul.lease_end_ms($1.lease_until_ms, $1.lease_ms) >= sabul.now_ms()';
CREATE INDEX job_state ON sabul.job (state, priority DESC, id);
CREATE INDEX job_hook ON sabul.job (hook) WHERE hook IN (1, 2);
CREATE INDEX job_token ON sabul.job (token) WHERE token IS NOT NULL;
";

/// Returns a runtime of this thread.
pub(super) fn runtime() -> Result<Runtime, SiteError> {
    Builder::new_current_thread().enable_all().build().map_err(SiteError::Process)
}

/// Connects, and creates or checks the tables.
pub(super) async fn connect(address: &Address) -> Result<Client, SiteError> {
    let mut client = address.connect().await?;
    client.batch_execute(SESSION).await?;
    let encoding: String = client.query_one_scalar("SHOW server_encoding", &[]).await?;
    if encoding != "UTF8" {
        return Err(SiteError::Encoding { place: String::new(), encoding });
    }
    let version = match version(&client).await? {
        Some(version) => version,
        None => create(&mut client).await?,
    };
    if version > VERSION {
        return Err(SiteError::Newer { place: String::new(), version, ours: VERSION });
    }
    Ok(client)
}

/// Returns the version of the tables, if they exist.
async fn version(client: &Client) -> Result<Option<i32>, SiteError> {
    let has_table: bool =
        client.query_one_scalar("SELECT to_regclass('sabul.version') IS NOT NULL", &[]).await?;
    if !has_table {
        return Ok(None);
    }
    Ok(client.query_opt_scalar("SELECT version FROM sabul.version", &[]).await?)
}

/// Creates the tables, unless another process was faster. Returns their version.
async fn create(client: &mut Client) -> Result<i32, SiteError> {
    let creation = client.transaction().await?;
    creation.batch_execute(CREATION_LOCK).await?;
    if let Some(version) = version(creation.client()).await? {
        return Ok(version);
    }
    creation.batch_execute(TABLES).await?;
    creation.execute("INSERT INTO sabul.version (version) VALUES ($1)", &[&VERSION]).await?;
    creation.commit().await?;
    Ok(VERSION)
}
