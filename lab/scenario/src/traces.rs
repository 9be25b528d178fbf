//! Cache of a scenario's trace files: each file is read once for all runs.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sabul_net::{TRACE_BYTES_MAX, Trace};

/// The folder of relative trace paths, and the traces read so far.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    folder: PathBuf,
    read: RefCell<BTreeMap<PathBuf, Trace>>,
}

impl Traces {
    /// An empty cache for a scenario file; trace paths are relative to that file's folder.
    pub(crate) fn of(file: &str) -> Self {
        let folder = Path::new(file).parent().map_or_else(PathBuf::new, Path::to_owned);
        Self { folder, ..Self::default() }
    }

    /// Returns the trace of a file.
    ///
    /// # Errors
    /// A message with the file's name and its problem.
    pub(crate) fn get(&self, path: &str) -> Result<Trace, String> {
        let path = self.folder.join(path);
        if let Some(trace) = self.read.borrow().get(&path) {
            return Ok(trace.clone());
        }
        let refuse = |what: String| format!("file '{}' {what}", path.display());
        let bytes = read(&path).map_err(refuse)?;
        let trace =
            Trace::parse(&bytes).map_err(|error| refuse(format!("is not a trace: {error}")))?;
        self.read.borrow_mut().insert(path, trace.clone());
        Ok(trace)
    }

    /// Returns the absolute path; `None` if the path is not UTF-8.
    pub(crate) fn absolute(&self, path: &str) -> Option<String> {
        let path = std::path::absolute(self.folder.join(path)).ok()?;
        path.into_os_string().into_string().ok()
    }
}

/// Returns the bytes of a file, up to one byte more than the limit of a trace.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a FIFO would block until its other end is opened.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is not a file; give the path of a trace file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(TRACE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}
