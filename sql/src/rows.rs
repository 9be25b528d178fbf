//! Rows of a running join: the Arrow stream of a child process.

use std::process::ExitStatus;

use arrow_ipc::reader::StreamDecoder;
use datafusion::arrow::buffer::Buffer;
use datafusion::arrow::datatypes::SchemaRef;
use datafusion::arrow::record_batch::RecordBatch;
use datafusion::error::{DataFusionError, Result};
use futures::Stream;
use tokio::io::{AsyncReadExt as _, BufReader};
use tokio::process::{Child, ChildStdout};
use tokio::task::JoinHandle;

/// Bytes of a read.
const READ_BYTES: usize = 1 << 20;
/// End mark of an Arrow stream: a continuation without a message.
const END: [u8; 8] = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0];
/// Bytes of messages that are kept. Ours: far above the messages of a join.
const MESSAGE_BYTES: u64 = 64 << 10;

/// Rows of a child process, which ends with this value.
pub(crate) struct Rows {
    child: Child,
    output: BufReader<ChildStdout>,
    messages: JoinHandle<String>,
    decoder: StreamDecoder,
    /// Bytes that the decoder has not read yet.
    pending: Buffer,
    /// Last bytes of the output.
    last: Vec<u8>,
}

impl Rows {
    pub(crate) fn of(mut child: Child) -> Result<Self> {
        let (Some(output), Some(mut errors)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(failed("its output is not a pipe"));
        };
        let messages = tokio::spawn(async move {
            let mut text = Vec::new();
            let _ = (&mut errors).take(MESSAGE_BYTES).read_to_end(&mut text).await;
            let _ = tokio::io::copy(&mut errors, &mut tokio::io::sink()).await;
            String::from_utf8_lossy(&text).trim().to_owned()
        });
        let output = BufReader::with_capacity(READ_BYTES, output);
        let pending = Buffer::from(Vec::<u8>::new());
        Ok(Self {
            child,
            output,
            messages,
            decoder: StreamDecoder::new(),
            pending,
            last: Vec::new(),
        })
    }

    /// Reads the columns of the result.
    pub(crate) async fn schema(mut self) -> Result<SchemaRef> {
        loop {
            if let Some(schema) = self.decoder.schema() {
                return Ok(schema);
            }
            if self.next().await?.is_none() {
                return Err(failed("its result has no columns"));
            }
        }
    }

    /// Returns the next batch; `None` after the last one of a complete join.
    async fn next(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            let knew_columns = self.decoder.schema().is_some();
            if let Some(batch) = self.decoder.decode(&mut self.pending)? {
                return Ok(Some(batch));
            }
            if let (false, Some(schema)) = (knew_columns, self.decoder.schema()) {
                // An empty batch, so that callers see the columns.
                return Ok(Some(RecordBatch::new_empty(schema)));
            }
            let mut bytes = Vec::with_capacity(READ_BYTES);
            if self.output.read_buf(&mut bytes).await? == 0 {
                return self.end().await;
            }
            self.last.extend(&bytes[bytes.len().saturating_sub(END.len())..]);
            self.last.drain(..self.last.len().saturating_sub(END.len()));
            self.pending = Buffer::from(bytes);
        }
    }

    /// Checks that the stream is complete, and that the program reports success.
    async fn end(&mut self) -> Result<Option<RecordBatch>> {
        let status: ExitStatus = self.child.wait().await?;
        if !status.success() {
            let messages = (&mut self.messages).await.unwrap_or_default();
            return Err(failed(&format!("{status}: {messages}")));
        }
        if self.last != END {
            return Err(failed("its output ends before the end mark; rows are missing"));
        }
        Ok(None)
    }
}

fn failed(why: &str) -> DataFusionError {
    DataFusionError::External(format!("sabul join: {why}").into())
}

/// Returns the batches of a join, with the columns of `schema`.
pub(crate) fn stream(
    started: Result<Rows>,
    schema: SchemaRef,
) -> impl Stream<Item = Result<RecordBatch>> + Send {
    futures::stream::try_unfold(Some(started), move |state| {
        let schema = SchemaRef::clone(&schema);
        async move {
            let Some(started) = state else { return Ok(None) };
            let mut rows = started?;
            let Some(batch) = rows.next().await? else { return Ok(None) };
            Ok(Some((with_columns(&batch, &schema)?, Some(Ok(rows)))))
        }
    })
}

/// Returns the columns of `schema`, by name.
fn with_columns(batch: &RecordBatch, schema: &SchemaRef) -> Result<RecordBatch> {
    let found = batch.schema();
    let columns: Vec<usize> = schema
        .fields()
        .iter()
        .map(|field| found.index_of(field.name()))
        .collect::<Result<_, _>>()?;
    Ok(batch.project(&columns)?.with_schema(SchemaRef::clone(schema))?)
}
