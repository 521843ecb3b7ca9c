//! Seeded generators and model files for plimsoll's own tests.
