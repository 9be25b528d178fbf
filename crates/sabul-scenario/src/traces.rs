//! Trace files of a scenario: each is read once, however many runs use it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use sabul_path::{TRACE_BYTES_MAX, Trace};

/// The folder from which paths of traces count, and the traces that have been read.
#[derive(Debug, Default)]
pub(crate) struct Traces {
    folder: PathBuf,
    read: RefCell<BTreeMap<PathBuf, Trace>>,
}

impl Traces {
    /// Those of a scenario file, whose paths count from its folder.
    pub(crate) fn of(file: &str) -> Self {
        let folder = Path::new(file).parent().map_or_else(PathBuf::new, Path::to_owned);
        Self { folder, ..Self::default() }
    }

    /// The trace in a file.
    ///
    /// # Errors
    /// The file and its problem, in words.
    pub(crate) fn get(&self, path: &str) -> Result<Trace, String> {
        let path = self.folder.join(path);
        if let Some(trace) = self.read.borrow().get(&path) {
            return Ok(trace.clone());
        }
        let refuse = |what: String| format!("file '{}' {what}", path.display());
        let bytes = read(&path).map_err(refuse)?;
        let trace =
            Trace::parse(&bytes).map_err(|error| refuse(format!("is no trace: {error}")))?;
        self.read.borrow_mut().insert(path, trace.clone());
        Ok(trace)
    }

    /// The same path, to be found from every folder.
    pub(crate) fn absolute(&self, path: &str) -> Option<String> {
        let path = std::path::absolute(self.folder.join(path)).ok()?;
        path.into_os_string().into_string().ok()
    }
}

/// The bytes of a file, up to one more than a trace may have.
fn read(path: &Path) -> Result<Vec<u8>, String> {
    let cannot = |error: std::io::Error| format!("cannot be read: {error}");
    // Opening a pipe waits for its other end.
    if !std::fs::metadata(path).map_err(cannot)?.is_file() {
        return Err("is no file; give the path of a trace file".to_owned());
    }
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(cannot)?;
    file.take(TRACE_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).map_err(cannot)?;
    Ok(bytes)
}
