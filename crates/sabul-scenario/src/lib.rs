//! Scenario files: read, checked, varied, and their results written.
