//! The load line for models: what fits where, before it runs.
