//! Joins of sabul as tables of DataFusion: SQL on tables of several machines, which are joined while they still arrive.
//!
//! The program `sabul` runs each join in a process of its own, and writes the joined rows as an Arrow stream. Columns that
//! a query does not need, and rows that its conditions exclude, are left out of that join.

mod filter;
mod rows;

use std::ffi::OsString;
use std::process::Stdio;
use std::sync::Arc;

use async_trait::async_trait;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::catalog::{Session, TableProvider};
use datafusion::error::Result;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::logical_expr::{Expr, TableProviderFilterPushDown, TableType};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use tokio::process::Command;

use crate::rows::Rows;

/// A command `sabul join` without its result.
#[derive(Clone, Debug)]
pub struct Join {
    program: OsString,
    arguments: Vec<OsString>,
}

impl Join {
    /// A join by this program, with the tables and options of `sabul join` as on a command line. The options `-o`,
    /// `--select`, `--where` and `--json` belong to the queries.
    pub fn new<A: Into<OsString>>(
        program: impl Into<OsString>,
        arguments: impl IntoIterator<Item = A>,
    ) -> Self {
        let arguments = arguments.into_iter().map(Into::into).collect();
        Self { program: program.into(), arguments }
    }

    /// Starts the program. The result has these columns, and rows that satisfy the condition.
    fn start(&self, columns: Option<&[String]>, condition: Option<&str>) -> Result<Rows> {
        let mut command = Command::new(&self.program);
        command.arg("join").args(&self.arguments).args(["-q", "-o", "-"]);
        if let Some(columns) = columns {
            command.arg(format!("--select={}", columns.join(",")));
        }
        if let Some(condition) = condition {
            command.arg(format!("--where={condition}"));
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Rows::of(command.kill_on_drop(true).spawn()?)
    }
}

/// The result of a join as a table. Each scan runs the join again.
#[derive(Debug)]
pub struct JoinedTable {
    join: Join,
    schema: SchemaRef,
}

impl JoinedTable {
    /// Reads the columns of the tables.
    ///
    /// # Errors
    /// If the program does not start, or refuses the tables or options.
    pub async fn open(join: Join) -> Result<Self> {
        let schema = join.start(None, None)?.schema().await?;
        Ok(Self { join, schema })
    }
}

#[async_trait]
impl TableProvider for JoinedTable {
    fn schema(&self) -> SchemaRef {
        Arc::clone(&self.schema)
    }

    fn table_type(&self) -> TableType {
        TableType::Base
    }

    async fn scan(
        &self,
        _session: &dyn Session,
        projection: Option<&Vec<usize>>,
        filters: &[Expr],
        limit: Option<usize>,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let all: Vec<usize> = (0..self.schema.fields().len()).collect();
        let projection = projection.unwrap_or(&all);
        let name = |at: &usize| self.schema.field(*at).name().clone();
        // A join has at least one column. Commas separate the columns of --select.
        let selected: Vec<String> = match &projection[..] {
            [] => vec![name(&0)],
            some => some.iter().map(name).collect(),
        };
        let is_selected = selected.iter().all(|name| !name.contains(','));
        let conditions: Vec<String> = filters
            .iter()
            .filter_map(|expression| filter::condition(expression, &self.schema))
            .collect();
        let scan = Scan {
            join: self.join.clone(),
            columns: is_selected.then_some(selected),
            condition: (!conditions.is_empty()).then(|| conditions.join(" AND ")),
            schema: Arc::new(self.schema.project(projection)?),
        };
        let schema = Arc::clone(&scan.schema);
        let scan: Vec<Arc<dyn PartitionStream>> = vec![Arc::new(scan)];
        Ok(Arc::new(StreamingTableExec::try_new(schema, scan, None, [], false, limit)?))
    }

    fn supports_filters_pushdown(
        &self,
        filters: &[&Expr],
    ) -> Result<Vec<TableProviderFilterPushDown>> {
        // DataFusion evaluates each condition again, with its own rules for types.
        let answer = |expression: &&Expr| match filter::condition(expression, &self.schema) {
            Some(_) => TableProviderFilterPushDown::Inexact,
            None => TableProviderFilterPushDown::Unsupported,
        };
        Ok(filters.iter().map(answer).collect())
    }
}

/// Part of a join that a query needs.
#[derive(Debug)]
struct Scan {
    join: Join,
    /// `None`: all columns.
    columns: Option<Vec<String>>,
    condition: Option<String>,
    /// Columns for DataFusion.
    schema: SchemaRef,
}

impl PartitionStream for Scan {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _context: Arc<TaskContext>) -> SendableRecordBatchStream {
        let started = self.join.start(self.columns.as_deref(), self.condition.as_deref());
        let rows = rows::stream(started, Arc::clone(&self.schema));
        Box::pin(RecordBatchStreamAdapter::new(Arc::clone(&self.schema), rows))
    }
}
