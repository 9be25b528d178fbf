//! The model's files, and thousands of its points.

mod files;
mod thousands;
