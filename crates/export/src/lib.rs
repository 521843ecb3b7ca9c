//! A plan in an engine's own words, each proven by replaying the engine's rule.
