//! Reader for a `[[flow]]` whose traffic comes from a user's program.

use crate::arm::Arm;
use crate::table::Table;
use crate::tree::Value;

/// Most arguments of a command, program name included.
const TEXTS_MAX: usize = 200;
const EXAMPLE: &str = "a list of texts, program first, such as [\"iperf3\", \"-c\", \"{far}\"]";

/// Returns the commands of the near and the far host.
pub(crate) fn read(table: &Table<'_>, arm: Arm) -> (Vec<String>, Vec<String>) {
    if arm == Arm::Sim {
        let what = "transport command runs only in the lab; use `sabul lab run`";
        table.refuse("transport", what);
    }
    let command = texts(table, "command");
    if table.has("command") && command.as_ref().is_some_and(Vec::is_empty) {
        table.refuse("command", format!("is empty; use {EXAMPLE}"));
    }
    (command.unwrap_or_default(), texts(table, "peer_command").unwrap_or_default())
}

/// Returns the arguments of a command; `None` after a logged problem.
fn texts(table: &Table<'_>, key: &str) -> Option<Vec<String>> {
    let nodes = table.list(key, EXAMPLE)?;
    if nodes.len() > TEXTS_MAX {
        let count = nodes.len();
        table.refuse(key, format!("has {count} texts; use from 1 to {TEXTS_MAX}"));
        return None;
    }
    let mut texts = Vec::new();
    for (n, node) in nodes.iter().enumerate() {
        let shown = node.value.shown();
        let wrong = match &node.value {
            Value::Text(text) if n == 0 && text.is_empty() => {
                format!("has no program: the first text is empty; use {EXAMPLE}")
            }
            // An argument ends at its first zero byte.
            Value::Text(text) if text.contains('\0') => {
                format!(
                    "{shown} contains a zero byte, which an argument cannot contain; remove the byte"
                )
            }
            Value::Text(text) => {
                texts.push(text.clone());
                continue;
            }
            Value::Integer(_) | Value::Float(_) | Value::Flag(_) | Value::Date(_) => {
                format!("{shown} is not a text; write \"{shown}\"")
            }
            Value::List(_) | Value::Table(_) => format!("{shown} is not a text; use {EXAMPLE}"),
        };
        table.refuse(key, wrong);
        return None;
    }
    Some(texts)
}
