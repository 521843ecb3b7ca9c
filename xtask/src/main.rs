//! Workspace chores that cargo alone cannot express.
fn main() {}
