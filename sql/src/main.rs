//! `sabul-sql QUERY TABLE... --on KEY [OPTION OF sabul join]...`: prints the result of a SQL query on the table `joined`.
//!
//! The variable `SABUL` names the program; the default is `sabul`.

use std::env;
use std::fmt;
use std::sync::Arc;

use datafusion::prelude::{SessionConfig, SessionContext};
use sabul_sql::{Join, JoinedTable};

const USAGE: &str = "no query; usage: sabul-sql QUERY TABLE... --on KEY [OPTION]...
  QUERY is SQL on the table 'joined'; tables and options are those of 'sabul join'.
  example: sabul-sql 'SELECT name, sum(bytes) FROM joined GROUP BY name' a:logs.parquet users.csv --on user";

/// An error, which `main` prints as it is.
struct Failure(String);

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut arguments = env::args_os().skip(1);
    let query = arguments.next().and_then(|it| it.into_string().ok());
    let query = query.ok_or_else(|| Failure(USAGE.to_owned()))?;
    let program = env::var_os("SABUL").unwrap_or_else(|| "sabul".into());
    run(&query, Join::new(program, arguments)).await.map_err(|error| Failure(error.to_string()))
}

async fn run(query: &str, join: Join) -> datafusion::error::Result<()> {
    let config = SessionConfig::new().with_information_schema(true);
    let context = SessionContext::new_with_config(config);
    context.register_table("joined", Arc::new(JoinedTable::open(join).await?))?;
    context.sql(query).await?.show().await
}
