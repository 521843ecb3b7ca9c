//! The ledger over a single memory.

use plimsoll_residency::{CoResidency, InferenceSpec, ResidencyLedger};
use plimsoll_units::Bytes;

fn gb(n: u64) -> Bytes {
    Bytes::new(n * 1_000_000_000)
}

fn spec(role: &str, bytes: Bytes) -> InferenceSpec {
    InferenceSpec::new(role, "llama.cpp").with_memory(bytes, Bytes::ZERO)
}

/// 96 GB with a coder of 55 and a small one of 9.
fn workstation() -> ResidencyLedger {
    let ledger = ResidencyLedger::new(Some(gb(96)));
    assert_eq!(ledger.reserve("a", &spec("coder-daily", gb(55))), Ok(true));
    assert_eq!(ledger.reserve("b", &spec("coder-small", gb(9))), Ok(true));
    ledger
}

#[test]
fn what_does_not_fit_is_refused_with_every_holder() {
    let ledger = workstation();
    let planner = InferenceSpec::new("planner", "vllm").with_memory(gb(45), gb(10));
    assert_eq!(
        ledger.reserve("c", &planner).unwrap_err().to_string(),
        "unplaceable: 'planner' needs 55.0 GB but only 32.0 GB of the 96.0 GB unified-memory budget is free \
         (held by coder-daily 55.0 GB, coder-small 9.0 GB)"
    );
    assert_eq!((ledger.used(), ledger.snapshot().len()), (gb(64), 2));
}

#[test]
fn a_refusal_by_an_empty_ledger_names_nobody() {
    let ledger = ResidencyLedger::new(Some(gb(8)));
    assert_eq!(
        ledger.reserve("a", &spec("big", gb(9))).unwrap_err().to_string(),
        "unplaceable: 'big' needs 9.0 GB but only 8.0 GB of the 8.0 GB unified-memory budget is free (held by nothing)"
    );
}

#[test]
fn whoever_is_excluded_is_refused_whichever_came_first() {
    let planner = spec("planner", gb(1)).excluding(["role:coder-daily"]);
    let coder = spec("role:coder-daily", gb(1));
    let ledger = ResidencyLedger::new(None);
    ledger.reserve("p", &planner).unwrap();
    assert_eq!(
        ledger.reserve("c", &coder).unwrap_err().to_string(),
        "unplaceable: 'coder-daily' cannot be resident beside 'planner' ('planner' excludes it)"
    );
    let ledger = ResidencyLedger::new(None);
    ledger.reserve("c", &coder).unwrap();
    assert_eq!(
        ledger.reserve("p", &planner).unwrap_err().to_string(),
        "unplaceable: 'planner' cannot be resident beside 'coder-daily' ('planner' excludes it)"
    );
    assert!(ledger.release("c"));
    assert_eq!(ledger.reserve("p", &planner), Ok(true));
}

#[test]
fn exactly_the_budget_fits_and_one_byte_more_does_not() {
    let ledger = workstation();
    let refused = ledger.reserve("c", &spec("filler", Bytes::new(32_000_000_001)));
    assert!(matches!(refused, Err(CoResidency::OverBudget { .. })), "{refused:?}");
    assert_eq!(ledger.reserve("c", &spec("filler", gb(32))), Ok(true));
    assert_eq!(ledger.used(), gb(96));
    assert!(ledger.reserve("d", &spec("one", Bytes::new(1))).is_err());
}
