//! Queries on joins by the program of the variable `SABUL`, as `make test-sql` sets it.

use std::env;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use datafusion::arrow::util::pretty::pretty_format_batches;
use datafusion::prelude::SessionContext;
use sabul_sql::{Join, JoinedTable};
use tempfile::TempDir;

/// Time for the start of a server.
const START: Duration = Duration::from_secs(20);

fn program() -> PathBuf {
    env::var_os("SABUL").expect("SABUL names the program; run 'make test-sql'").into()
}

/// Directory with the tables `visits` (8 rows of 4 users) and `users` (3 rows), which have the column `note` in common.
fn tables() -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let visits =
        "user,bytes,note\n1,10,a\n1,20,b\n2,5,a\n2,7,\n3,100,it's\n3,1,a\n4,50,b\n4,60,b\n";
    fs::write(folder.path().join("visits.csv"), visits).unwrap();
    fs::write(
        folder.path().join("users.csv"),
        "user,name,note,-n\n1,Ada,x,1\n2,Bob,y,2\n3,Eve,,3\n",
    )
    .unwrap();
    folder
}

fn arguments(folder: &Path) -> Vec<String> {
    let place = |name| folder.join(name).to_str().unwrap().to_owned();
    vec![place("visits.csv"), place("users.csv"), "--on".to_owned(), "user".to_owned()]
}

/// Returns the result of a query as text, or its error.
async fn answer_to(program: &Path, arguments: &[String], query: &str) -> Result<String, String> {
    let table = JoinedTable::open(Join::new(program, arguments)).await;
    let context = SessionContext::new();
    context.register_table("joined", Arc::new(table.map_err(|error| error.to_string())?)).unwrap();
    let frame = context.sql(query).await.map_err(|error| error.to_string())?;
    let batches = frame.collect().await.map_err(|error| error.to_string())?;
    let text = pretty_format_batches(&batches).unwrap().to_string();
    // Without the frame of the table.
    let lines = text.lines().filter(|line| line.starts_with('|')).skip(1);
    let rows = lines.map(|line| {
        let cells = line.trim_matches('|').split('|').map(str::trim).collect::<Vec<_>>();
        cells.join(",")
    });
    Ok(rows.collect::<Vec<_>>().join(" "))
}

/// A program that writes its arguments to `arguments` in the folder, and then runs `command` of sh with the true program
/// in `$SABUL`.
fn recording(folder: &Path, command: &str) -> PathBuf {
    let path = folder.join("recording");
    let record = folder.join("arguments");
    let text = format!(
        "#!/bin/sh\nSABUL='{}'\necho \"$@\" >>'{}'\n{command}\n",
        program().display(),
        record.display()
    );
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

#[tokio::test]
async fn queries_have_the_answers_of_sql() {
    let folder = tables();
    for (query, expected) in [
        ("SELECT count(*) FROM joined", "6"),
        (
            "SELECT name, sum(bytes) AS s FROM joined GROUP BY name ORDER BY s DESC",
            "Eve,101 Ada,30 Bob,12",
        ),
        ("SELECT bytes FROM joined WHERE note_visits = 'it''s'", "100"),
        (
            "SELECT bytes FROM joined WHERE note_visits IS NULL OR note_users IS NULL ORDER BY 1",
            "1 7 100",
        ),
        ("SELECT bytes, name FROM joined WHERE bytes BETWEEN 6 AND 15 ORDER BY 1", "7,Bob 10,Ada"),
        ("SELECT upper(name) FROM joined WHERE name LIKE 'A%' AND bytes > 10", "ADA"),
        ("SELECT bytes FROM joined WHERE user IN (1, 3) AND NOT bytes > 10 ORDER BY 1", "1 10"),
        ("SELECT count(*) FROM joined a JOIN joined b ON a.name = b.name", "12"),
        ("SELECT bytes FROM joined WHERE bytes > 1000", ""),
        ("SELECT \"-n\" FROM joined WHERE \"-n\" > 2", "3 3"),
        ("SELECT count(*) FROM (SELECT * FROM joined LIMIT 2)", "2"),
    ] {
        let answer = answer_to(&program(), &arguments(folder.path()), query).await;
        assert_eq!(answer.as_deref(), Ok(expected), "{query}");
    }
}

#[tokio::test]
async fn needed_columns_and_conditions_reach_the_join() {
    let folder = tables();
    let recording = recording(folder.path(), "exec \"$SABUL\" \"$@\"");
    let query =
        "SELECT name FROM joined WHERE bytes > 15 AND note_visits <> 'b' AND name LIKE 'E%'";
    assert_eq!(answer_to(&recording, &arguments(folder.path()), query).await.as_deref(), Ok("Eve"));
    let record = fs::read_to_string(folder.path().join("arguments")).unwrap();
    let last = record.lines().last().unwrap();
    let condition = last.split("--where=").nth(1).unwrap();
    let mut terms: Vec<_> = condition.split(" AND ").collect();
    terms.sort_unstable();
    assert_eq!(terms, ["\"bytes\" > 15", "\"note_visits\" <> 'b'"], "{last}");
    let select = last.split("--select=").nth(1).unwrap().split(' ').next().unwrap();
    let mut columns: Vec<_> = select.split(',').collect();
    columns.sort_unstable();
    assert_eq!(columns, ["bytes", "name", "note_visits"], "{last}");
}

#[tokio::test]
async fn a_join_that_ends_early_is_an_error_and_no_shorter_result() {
    let folder = tables();
    let arguments = arguments(folder.path());
    let query = "SELECT count(*) FROM joined";
    // The first run, for the columns, is complete.
    for (command, text) in [
        (
            "[ $(wc -l <\"$(dirname \"$0\")/arguments\") = 1 ] || { \"$SABUL\" \"$@\" | head -c 700; echo cut >&2; exit 3; }",
            "cut",
        ),
        ("[ $(wc -l <\"$(dirname \"$0\")/arguments\") = 1 ] || kill -9 $$", "signal: 9"),
        (
            "[ $(wc -l <\"$(dirname \"$0\")/arguments\") = 1 ] || { \"$SABUL\" \"$@\" | head -c -8; exit 0; }",
            "end mark",
        ),
    ] {
        let _ = fs::remove_file(folder.path().join("arguments"));
        let recording = recording(folder.path(), &format!("{command}\nexec \"$SABUL\" \"$@\""));
        let answer = answer_to(&recording, &arguments, query).await;
        assert!(answer.as_ref().is_err_and(|it| it.contains(text)), "{command}: {answer:?}");
    }
}

#[tokio::test]
async fn wrong_tables_and_options_are_refused_with_the_message_of_the_program() {
    let folder = tables();
    let mut arguments = arguments(folder.path());
    arguments[1] += ".missing";
    let error = answer_to(&program(), &arguments, "SELECT 1").await.unwrap_err();
    assert!(error.contains("users.csv.missing"), "{error}");
    let error = answer_to(Path::new("/nowhere/sabul"), &arguments, "SELECT 1").await.unwrap_err();
    assert!(error.contains("No such file"), "{error}");
}

/// A server that ends with this value.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn tables_of_another_machine_arrive_by_ticket() {
    let folder = tables();
    let ticket = folder.path().join("ticket");
    let mut command = Command::new(program());
    command.args(["serve", "--read-only", "--listen", "127.0.0.1:0", "--root"]).arg(folder.path());
    command.arg("--ticket-file").arg(&ticket).stdout(Stdio::null()).stderr(Stdio::null());
    let _server = Server(command.spawn().unwrap());
    let start = Instant::now();
    while !ticket.exists() {
        assert!(start.elapsed() < START, "the server wrote no ticket");
        sleep(Duration::from_millis(20));
    }
    let mut arguments = arguments(folder.path());
    arguments.insert(0, "--ticket".to_owned());
    arguments.insert(1, ticket.to_str().unwrap().to_owned());
    arguments[2] = "sabul:///visits.csv".to_owned();
    let query = "SELECT sum(bytes) FROM joined WHERE user < 3";
    assert_eq!(answer_to(&program(), &arguments, query).await.as_deref(), Ok("42"));
}
