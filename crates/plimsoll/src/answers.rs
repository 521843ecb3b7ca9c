//! What programs are told as JSON, in whatever way they ask.

use plimsoll_balance::{Refusal, Stopped, Verdict};
use plimsoll_export::StoppedRecord;
use plimsoll_residency::{Advice, Attribution, Book, CoResidency, Holder, Holding};
use plimsoll_units::{Bytes, PoolId};
use serde::Serialize;

use crate::Suggestion;

/// `plimsoll.ps/1`: who holds how much memory, and what is really used. Integers are bytes; times are milliseconds since the
/// UNIX epoch.
#[derive(Clone, Debug, Serialize)]
pub struct Occupancy {
    /// `plimsoll.ps/1`.
    pub format: &'static str,
    /// The memories that can be booked.
    pub pools: Vec<PoolRecord>,
    /// Who holds something, one entry for each pool.
    pub holders: Vec<HolderRecord>,
    /// Who waits.
    pub waiting: Vec<WaitingRecord>,
    /// Where the host's memory went; `None` when that is not known.
    pub attribution: Option<AttributionRecord>,
    /// The same of the cards' memories.
    pub devices: Vec<AttributionRecord>,
    /// Why something is not measured.
    pub unknown: Vec<String>,
}

/// A memory that can be booked.
#[derive(Clone, Debug, Serialize)]
pub struct PoolRecord {
    /// Its name.
    pub id: String,
    /// The most that may be booked; `None` where there is no limit.
    pub budget_bytes: Option<u64>,
    /// What is booked.
    pub used_bytes: u64,
}

/// What one running copy holds in one pool.
#[derive(Clone, Debug, Serialize)]
pub struct HolderRecord {
    /// The running copy.
    pub instance: String,
    /// What it is for.
    pub role: String,
    /// Where.
    pub pool: String,
    /// What is booked.
    pub bytes: u64,
    /// What was measured; `None` when it cannot be seen.
    pub measured_bytes: Option<u64>,
    /// The first process that it lives with.
    pub owner: Option<String>,
    /// Whether it is never advised for eviction.
    pub pinned: bool,
    /// How many uses are under way.
    pub in_use: u32,
    /// Since when.
    pub since: u64,
}

/// Somebody who waits for room.
#[derive(Clone, Debug, Serialize)]
pub struct WaitingRecord {
    /// The running copy that it will be.
    pub instance: String,
    /// What it is for.
    pub role: String,
    /// What it needs.
    pub bytes: u64,
    /// Since when.
    pub since: u64,
}

/// What is used of one memory, beside what is booked.
#[derive(Clone, Debug, Serialize)]
pub struct AttributionRecord {
    /// The memory.
    pub pool: String,
    /// What is used in all.
    pub used_bytes: u64,
    /// What is booked in all.
    pub booked_bytes: u64,
    /// What bookings use beyond what they booked.
    pub over_use_bytes: u64,
    /// What they booked and do not use.
    pub estimate_error_bytes: u64,
    /// What processes without a booking use.
    pub outside_bytes: u64,
    /// What is used and nobody is known for.
    pub unexplained_bytes: u64,
    /// What processes use beyond what is used in all.
    pub missing_bytes: u64,
}

impl Occupancy {
    /// How full the pools of `book` are, who holds that (`holders`, with what was measured of them), where the memories
    /// went (`host` is the name of the host's own), and what could not be measured.
    pub fn new(
        book: &Book,
        holders: &[Holder],
        attributions: &[(PoolId, Attribution)],
        host: &str,
        unknown: Vec<String>,
    ) -> Self {
        let (hosts, devices): (Vec<_>, Vec<_>) =
            attributions.iter().partition(|(pool, _)| pool.as_str() == host);
        let told = |(pool, told): &(PoolId, Attribution)| AttributionRecord::new(pool, told);
        Self {
            format: "plimsoll.ps/1",
            pools: book
                .pools()
                .map(|pool| PoolRecord {
                    id: pool.id.to_string(),
                    budget_bytes: pool.budget.map(Bytes::get),
                    used_bytes: pool.used.get(),
                })
                .collect(),
            holders: holders.iter().map(HolderRecord::new).collect(),
            waiting: book
                .waiting()
                .map(|waiting| WaitingRecord {
                    instance: waiting.instance.clone(),
                    role: waiting.role.clone(),
                    bytes: waiting.need.get(),
                    since: waiting.since.as_millis(),
                })
                .collect(),
            attribution: hosts.into_iter().map(told).next(),
            devices: devices.into_iter().map(told).collect(),
            unknown,
        }
    }
}

impl HolderRecord {
    fn new(holder: &Holder) -> Self {
        Self {
            instance: holder.instance.clone(),
            role: holder.role.clone(),
            pool: holder.pool.to_string(),
            bytes: holder.booked.get(),
            measured_bytes: holder.measured.map(Bytes::get),
            owner: holder.owners.first().map(ToString::to_string),
            pinned: holder.pinned,
            in_use: holder.in_use,
            since: holder.since.as_millis(),
        }
    }
}

impl AttributionRecord {
    fn new(pool: &PoolId, told: &Attribution) -> Self {
        let sum = |parts: &[Holding]| Bytes::saturating_sum(parts.iter().map(|part| part.bytes)).get();
        Self {
            pool: pool.to_string(),
            used_bytes: told.used.get(),
            booked_bytes: told.booked.get(),
            over_use_bytes: sum(&told.over_use),
            estimate_error_bytes: sum(&told.estimate_error),
            outside_bytes: Bytes::saturating_sum(told.outside.iter().map(|other| other.bytes)).get(),
            unexplained_bytes: told.unexplained.get(),
            missing_bytes: told.missing.get(),
        }
    }
}

/// `plimsoll.refusal/1`: a no, with its reason and what would turn it into a yes. Integers are bytes.
#[derive(Clone, Debug, Serialize)]
pub struct RefusalRecord {
    /// `plimsoll.refusal/1`.
    pub format: &'static str,
    /// `proven-infeasible`, `unknown`, `over-budget`, `excluded` or `timed-out`.
    pub reason: &'static str,
    /// How much is missing.
    pub short_bytes: u64,
    /// Why, in words; empty where nothing is proven.
    pub certificate: String,
    /// What stopped each device.
    pub stopped: Vec<StoppedRecord>,
    /// What would make it fit.
    pub suggestions: Vec<SuggestionRecord>,
}

/// One change that makes it fit.
#[derive(Clone, Debug, Serialize)]
pub struct SuggestionRecord {
    /// What to change.
    pub change: &'static str,
    /// To what.
    pub to: String,
    /// How much need goes away with it.
    pub frees_bytes: u64,
}

impl RefusalRecord {
    fn new(reason: &'static str, certificate: String) -> Self {
        let (stopped, suggestions) = (Vec::new(), Vec::new());
        Self { format: "plimsoll.refusal/1", reason, short_bytes: 0, certificate, stopped, suggestions }
    }

    /// A model that has no plan.
    pub fn of_plan(refusal: &Refusal, suggestions: &[Suggestion]) -> Self {
        let (reason, certificate) = match &refusal.verdict {
            Verdict::ProvenInfeasible(certificate) => ("proven-infeasible", certificate.to_string()),
            Verdict::Unknown => ("unknown", String::new()),
        };
        let suggestion = |s: &Suggestion| SuggestionRecord {
            change: s.change.word(),
            to: s.change.to_text(),
            frees_bytes: s.frees.get(),
        };
        Self {
            short_bytes: refusal.short_bytes.get(),
            stopped: refusal.stopped.iter().map(StoppedRecord::from_stopped).collect(),
            suggestions: suggestions.iter().map(suggestion).collect(),
            ..Self::new(reason, certificate)
        }
    }

    /// A cluster of which nothing may be used, for the reason given.
    pub fn nothing_usable(certificate: String, stopped: &[Stopped]) -> Self {
        let stopped = stopped.iter().map(StoppedRecord::from_stopped).collect();
        Self { stopped, ..Self::new("proven-infeasible", certificate) }
    }

    /// A request that is not allowed, whatever the bytes.
    pub fn excluded(why: String) -> Self {
        Self::new("excluded", why)
    }

    /// A booking that does not fit, and whom to evict so that it does.
    pub fn of_booking(
        refusal: &CoResidency,
        certificate: String,
        advice: Option<&Advice>,
        timed_out: bool,
    ) -> Self {
        let (reason, short) = match refusal {
            CoResidency::OverBudget { need, free, .. } => ("over-budget", need.saturating_sub(*free)),
            CoResidency::Behind { .. } => ("over-budget", Bytes::ZERO),
            _ => ("excluded", Bytes::ZERO),
        };
        let victims = advice.map(|advice| advice.victims.as_slice()).unwrap_or_default();
        let evict = |victim: &plimsoll_residency::Victim| SuggestionRecord {
            change: "evict",
            to: victim.instance.clone(),
            frees_bytes: victim.bytes.get(),
        };
        Self {
            short_bytes: short.get(),
            suggestions: victims.iter().map(evict).collect(),
            ..Self::new(if timed_out { "timed-out" } else { reason }, certificate)
        }
    }
}
