//! Errors of the library as exceptions of `sabul.errors`.

use pyo3::prelude::*;
use pyo3::types::PyTuple;
use sabul::{Error, ErrorKind, Failure};

/// A failed operation: the words of its cause, as in JSON documents of the program, and a message.
#[derive(Debug)]
pub(crate) struct Fault {
    /// Word of the cause, which decides the exit code.
    kind: &'static str,
    /// Word of the failure class.
    code: &'static str,
    message: String,
    /// Exception that the new exception follows.
    cause: Option<Box<PyErr>>,
}

impl Fault {
    /// An invalid request.
    pub(crate) fn usage(message: impl Into<String>) -> Self {
        Self { kind: "usage", code: "usage", message: message.into(), cause: None }
    }

    /// A failed operation.
    pub(crate) fn failed(message: impl Into<String>) -> Self {
        Self { kind: "failed", code: "failed", message: message.into(), cause: None }
    }

    /// Sets the exception that caused the failure.
    pub(crate) fn after(self, cause: Box<PyErr>) -> Self {
        Self { cause: Some(cause), ..self }
    }

    /// A transfer below its minimum rate.
    pub(crate) fn too_slow(message: String) -> Self {
        Self { kind: "too-slow", code: "too-slow", message, cause: None }
    }
}

/// Returns the word of a kind of errors in JSON documents.
const fn word_of(kind: ErrorKind) -> &'static str {
    match kind {
        ErrorKind::Internal => "internal",
        ErrorKind::Request => "usage",
        ErrorKind::Unreachable => "unreachable",
        ErrorKind::Authentication => "authentication",
        ErrorKind::Verification => "verification",
        ErrorKind::Destination => "destination",
        ErrorKind::Interrupt => "interrupted",
        _ => "failed",
    }
}

impl From<Error> for Fault {
    fn from(error: Error) -> Self {
        let kind = word_of(error.kind());
        let code = match &error {
            Error::Exists(_) => "exists",
            Error::Failed(failure) => failure.code.word(),
            Error::NoSpace(_) => "no-space",
            Error::Permission(_) => "permission",
            _ => kind,
        };
        Self { kind, code, message: error.to_string(), cause: None }
    }
}

impl From<Failure> for Fault {
    fn from(failure: Failure) -> Self {
        Error::from(failure).into()
    }
}

impl From<Fault> for PyErr {
    fn from(fault: Fault) -> Self {
        Python::attach(|py| {
            let Fault { kind, code, message, cause } = fault;
            let made = PyModule::import(py, "sabul.errors").and_then(|module| {
                let arguments = PyTuple::new(py, [kind, code, &message])?;
                module.getattr("_make")?.call1(arguments)
            });
            let error = made.map_or_else(|error| error, PyErr::from_value);
            if let Some(cause) = cause {
                error.set_cause(py, Some(*cause));
            }
            error
        })
    }
}
