//! What models take, against measurements, published totals and situations with known answers.

mod behaviour;
mod fixture;
mod measured;
mod totals;
