//! Layers to unlike devices: exact and certified planners, and an independent auditor.
