//! Batches of several tables through one bounded channel for each table.

use std::sync::mpsc::{self, Receiver, Sender, SyncSender};

use arrow_array::RecordBatch;

use crate::error::JoinError;
use crate::operator::{Join, Summary};
use crate::pending::Sink;

/// Batches of a table that wait for the join. Ours: enough to decode while the join works.
const WAITING: usize = 4;

/// Sender of the batches of one table. A sender that is dropped before [`Feed::end`] fails the join.
#[derive(Debug)]
pub struct Feed {
    table: usize,
    batches: SyncSender<RecordBatch>,
    notices: Sender<(usize, Notice)>,
    is_ended: bool,
}

#[derive(Debug)]
enum Notice {
    Batch,
    End,
    Failed(JoinError),
}

/// Receiver of the batches of all tables.
#[derive(Debug)]
pub struct Inputs {
    batches: Vec<Receiver<RecordBatch>>,
    notices: Receiver<(usize, Notice)>,
}

/// Returns a sender for each table, and the receiver.
pub fn inputs(tables: usize) -> (Vec<Feed>, Inputs) {
    let (notices, all) = mpsc::channel();
    let (feeds, batches) = (0..tables)
        .map(|table| {
            let (batches, receiver) = mpsc::sync_channel(WAITING);
            (Feed { table, batches, notices: notices.clone(), is_ended: false }, receiver)
        })
        .unzip();
    (feeds, Inputs { batches, notices: all })
}

impl Feed {
    /// Sends a batch; waits while the join is busy. Returns whether the join still runs.
    pub fn send(&self, batch: RecordBatch) -> bool {
        self.batches.send(batch).is_ok() && self.notices.send((self.table, Notice::Batch)).is_ok()
    }

    /// Ends the table.
    pub fn end(mut self) {
        self.finish(Notice::End);
    }

    /// Ends the join with an error.
    pub fn fail(mut self, error: JoinError) {
        self.finish(Notice::Failed(error));
    }

    fn finish(&mut self, notice: Notice) {
        self.is_ended = true;
        // After an error the join has ended already.
        let _ = self.notices.send((self.table, notice));
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if !self.is_ended {
            let error = format!("table {}: its source ended early", self.table + 1);
            self.finish(Notice::Failed(JoinError::Source(error)));
        }
    }
}

/// Joins all batches in the order of arrival.
///
/// # Errors
/// If a source fails, or as [`Join::push`].
pub fn run(mut join: Join, inputs: &Inputs, sink: Sink<'_>) -> Result<Summary, JoinError> {
    let mut open = inputs.batches.len();
    while open > 0 {
        let Ok((table, notice)) = inputs.notices.recv() else {
            return Err(JoinError::Source("a source ended early".to_owned()));
        };
        match notice {
            Notice::Batch => {
                let batch = inputs.batches[table].recv();
                let batch =
                    batch.map_err(|_| JoinError::Source("a source ended early".to_owned()))?;
                join.push(table, batch, sink)?;
            }
            Notice::End => {
                open -= 1;
                join.end(table, sink)?;
            }
            Notice::Failed(error) => return Err(error),
        }
    }
    join.finish(sink)
}
