//! Who holds how much memory: what a resident model is and what it needs.
