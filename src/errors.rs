//! An error told with its causes.

use std::error::Error;

/// The error and its causes in one line, from the outermost: `cannot open X: permission denied`. An error of ours names the
/// operation and the object, and leaves the cause to its source.
#[must_use]
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}
