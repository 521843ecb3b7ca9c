//! What changed between two looks at a machine.
