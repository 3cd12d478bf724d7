//! Errors, in the form in which Python's half sorts them.

use pyo3::create_exception;
use pyo3::exceptions::PyException;
use pyo3::prelude::*;
use towpath::Error;
use towpath::report::to_json;
use towpath_exchange::kind::kind;

create_exception!(
    _towpath,
    Failure,
    PyException,
    "What the library answers: kind, text, report (JSON, or None), status (or None)."
);

/// A failure whose kind Python's half knows.
pub(crate) fn failure(error: &Error) -> PyErr {
    let status = if let Error::Status(status) = error { Some(*status) } else { None };
    Failure::new_err((kind(error), error.to_string(), error.report().map(to_json), status))
}

/// One that begins in this crate.
pub(crate) fn own(kind: &'static str, text: impl Into<String>) -> PyErr {
    Failure::new_err((kind, text.into(), None::<String>, None::<u16>))
}
