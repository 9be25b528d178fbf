//! Running commands that can be asked and told: what they say ([`words`]), and what they do and can be told ([`Job`]).

mod job;
pub mod words;

pub use job::Job;

#[cfg(test)]
mod tests;
