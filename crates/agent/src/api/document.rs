//! What can be asked and answered, as OpenAPI; and the shapes of documents that are other crates' own.

use axum::Json;
use serde_json::Value;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{InfoBuilder, LicenseBuilder};
use utoipa::{Modify, OpenApi, ToSchema};

use super::{ask, cluster, current, events, health, ledger, metrics, page, plan, profile};
use crate::error::Problem;

/// The shape of a plan (`plimsoll.plan/1`).
#[derive(ToSchema)]
#[expect(dead_code, reason = "what is sent is the library's own type; this says how it looks")]
pub(super) struct PlanDocument {
    /// `plimsoll.plan/1`.
    format: String,
    /// What is placed.
    #[schema(value_type = Object)]
    model: Value,
    /// What was asked.
    #[schema(value_type = Object)]
    request: Value,
    /// Which generation of the cluster it was computed from.
    #[schema(value_type = Object)]
    basis: Value,
    /// Where everything goes, in order.
    #[schema(value_type = Vec<Object>)]
    stages: Vec<Value>,
    /// Parts of layers that lie elsewhere.
    #[schema(value_type = Vec<Object>)]
    overrides: Vec<Value>,
    /// Parts beside the layers.
    #[schema(value_type = Vec<Object>)]
    parts: Vec<Value>,
    /// What was assumed, in words.
    assumed: Vec<String>,
    /// The same as data.
    #[schema(value_type = Option<Vec<Object>>)]
    assumptions: Option<Vec<Value>>,
    /// How good it is.
    #[schema(value_type = Object)]
    value: Value,
    /// What was met on the way.
    #[schema(value_type = Object)]
    report: Value,
    /// SHA-256 of all the rest.
    seal: Option<String>,
    /// What to type on which node.
    #[schema(value_type = Option<Vec<Object>>)]
    commands: Option<Vec<Value>>,
}

/// The shape of a refusal (`plimsoll.refusal/1`).
#[derive(ToSchema)]
#[expect(dead_code, reason = "what is sent is the library's own type; this says how it looks")]
pub(super) struct RefusalDocument {
    /// `plimsoll.refusal/1`.
    format: String,
    /// `proven-infeasible`, `unknown`, `over-budget` or `excluded`.
    reason: String,
    /// How much is missing.
    short_bytes: u64,
    /// Why, in words.
    certificate: String,
    /// What stopped each device.
    #[schema(value_type = Vec<Object>)]
    stopped: Vec<Value>,
    /// What would make it fit.
    suggestions: Vec<SuggestionDocument>,
}

/// One change that makes it fit.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what is sent is the library's own type; this says how it looks")]
pub(super) struct SuggestionDocument {
    /// What to change.
    change: String,
    /// To what.
    to: String,
    /// How much need goes away with it.
    frees_bytes: u64,
}

/// The shape of a ledger (`plimsoll.ps/1`).
#[derive(ToSchema)]
#[expect(dead_code, reason = "what is sent is the library's own type; this says how it looks")]
pub(super) struct LedgerDocument {
    /// `plimsoll.ps/1`.
    format: String,
    /// The memories that can be booked.
    pools: Vec<BudgetDocument>,
    /// Who holds something.
    holders: Vec<HolderDocument>,
    /// Who waits.
    #[schema(value_type = Vec<Object>)]
    waiting: Vec<Value>,
    /// Where the host's memory went.
    #[schema(value_type = Option<Object>)]
    attribution: Option<Value>,
    /// Where the cards' memories went.
    #[schema(value_type = Vec<Object>)]
    devices: Vec<Value>,
    /// Why something is not measured.
    unknown: Vec<String>,
}

/// A memory that can be booked.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what is sent is the library's own type; this says how it looks")]
pub(super) struct BudgetDocument {
    /// Its name.
    id: String,
    /// The most that may be booked; null without a limit.
    budget_bytes: Option<u64>,
    /// What is booked.
    used_bytes: u64,
}

/// What one running copy holds in one pool.
#[derive(ToSchema)]
#[expect(dead_code, reason = "what is sent is the library's own type; this says how it looks")]
pub(super) struct HolderDocument {
    /// The running copy.
    instance: String,
    /// What it is for.
    role: String,
    /// Where.
    pool: String,
    /// What is booked.
    bytes: u64,
    /// What was measured.
    measured_bytes: Option<u64>,
    /// The first process that it lives with.
    owner: Option<String>,
    /// Whether it is never advised for eviction.
    pinned: bool,
    /// How many uses are under way.
    in_use: u32,
    /// Since when, in milliseconds since the UNIX epoch.
    since: u64,
}

#[derive(OpenApi)]
#[openapi(
    paths(
        page::page,
        health::healthz,
        health::readyz,
        metrics::metrics,
        openapi,
        profile::profile,
        cluster::cluster,
        ledger::ledger,
        ledger::reserve,
        ledger::release,
        plan::plan,
        current::show,
        current::adopt,
        current::retire,
        events::events,
    ),
    components(schemas(
        Problem,
        SuggestionDocument,
        BudgetDocument,
        HolderDocument,
        ask::EngineWord,
        ask::FlashWord,
        ask::ObjectiveWord,
        ask::StrategyWord,
        ask::TransfersWord,
    )),
    modifiers(&Ours),
    security(("token" = []))
)]
struct Document;

/// What says whose document this is.
struct Ours;

impl Modify for Ours {
    fn modify(&self, document: &mut utoipa::openapi::OpenApi) {
        document.info = InfoBuilder::new()
            .title("plimsoll agent")
            .version(env!("CARGO_PKG_VERSION"))
            .description(Some(
                "What fits where on this machine or cluster, who holds how much memory, and what changes. Integers named \
                 `…_bytes` are bytes. An answer that is wrong input, or a fault, has a body {\"error\": …}. With a token, \
                 every path but / and /healthz needs it.",
            ))
            .license(Some(LicenseBuilder::new().name("MIT OR Apache-2.0").build()))
            .build();
        document.servers = None;
        let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).build();
        let components = document.components.get_or_insert_default();
        components.add_security_scheme("token", SecurityScheme::Http(bearer));
    }
}

/// This document.
#[utoipa::path(
    get,
    path = "/openapi.json",
    responses((status = 200, description = "What can be asked and answered.", body = Object))
)]
pub(super) async fn openapi() -> Json<utoipa::openapi::OpenApi> {
    Json(Document::openapi())
}
