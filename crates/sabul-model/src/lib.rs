//! The deterministic model of SABUL 2002 and its lemmas.
