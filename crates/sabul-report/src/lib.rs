//! Charts, tables and one-page reports from plain data.
