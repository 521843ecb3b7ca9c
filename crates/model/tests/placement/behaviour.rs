//! Situations with known answers.
