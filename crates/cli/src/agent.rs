//! `plimsoll agent`.

pub(crate) mod args;

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};

use plimsoll::cluster::{self, Node};
use plimsoll::residency::{ProcOwners, ResidencyLedger, Store};
use plimsoll::units::NodeId;
use plimsoll::watcher::SystemProfileWatcher;
use plimsoll_agent::{Agent, Config, Limits, Setup, Source, StartError, Token};
use tracing_subscriber::EnvFilter;

use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::watch::Failing;
use crate::{input, ledger, live, look};
use args::{AgentArgs, LogFormat};

pub(crate) fn run(args: &AgentArgs, cli: &Cli) -> Outcome {
    log(args.log_format)?;
    let token = args.token_file.as_deref().map(Token::read).transpose().map_err(Failure::input)?;
    let models = args.models.clone();
    let limits = Limits { look_interval: args.interval, ..Limits::default() };
    let config = Config { listen: args.listen, token, models, limits };
    let runtime =
        tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::internal)?;
    // Before anything runs that must not be held up.
    let place = place(args)?;
    let outcome = runtime.block_on(answer(args, place, config, cli.json));
    // A look at a driver that hangs is left behind.
    runtime.shutdown_background();
    outcome
}

async fn answer(args: &AgentArgs, place: Place, config: Config, json: bool) -> Outcome {
    let stopped = Stop::catch()?;
    let agent = match Agent::bind(config, setup(args, place)?).await {
        Ok(agent) => agent,
        Err(error @ StartError::Interrupted) => return Err(Failure::internal(error)),
        Err(error) if error.is_refusal() => {
            return Err(Failure::Refused { stdout: String::new(), stderr: error.to_string() });
        }
        Err(error) => return Err(Failure::input(error)),
    };
    let url = format!("http://{}", agent.address());
    tracing::info!(url, "listening");
    // Whoever chose port 0 reads this.
    let line = if json {
        format!("{{\"format\": \"plimsoll.agent/1\", \"url\": \"{url}\"}}\n")
    } else {
        format!("listening on {url}\n")
    };
    crate::print(&line)?;
    agent.run(stopped.comes()).await;
    tracing::info!("stopped");
    Ok(String::new())
}

/// What is planned on, under which name, and who holds what there.
struct Place {
    id: NodeId,
    source: Source,
    ledger: Arc<dyn Store>,
    owners: Arc<ProcOwners>,
}

/// Opens what was named. Blocks.
fn place(args: &AgentArgs) -> Result<Place, Failure> {
    if let Some(url) = &args.join {
        let (id, source) = live::join(url, args, described(args)?)?;
        let ledger = Arc::new(ResidencyLedger::with_pools([]));
        return Ok(Place { id, source, ledger, owners: Arc::new(ProcOwners::new()) });
    }
    let joins = [
        ("--address", args.place.address.is_some()),
        ("--rpc", args.place.rpc.is_some()),
        ("--main", args.place.main),
    ];
    if let Some((flag, _)) = joins.iter().find(|(_, given)| *given) {
        return Err(Failure::Input(format!("{flag} tells a cluster of this machine: give --join too")));
    }
    let source = match &args.cluster {
        Some(path) if live::is_url(path) => {
            return Err(Failure::Input(format!(
                "an agent takes part in a cluster: --join {}",
                path.display()
            )));
        }
        Some(path) => {
            let file = cluster::file::read_cluster(path).map_err(Failure::input)?;
            Source::described(&file.snapshot).map_err(Failure::input)?
        }
        None => Source::Machine,
    };
    let (ledger, owners) = ledger::Ledger::shared(args.ledger.as_deref())?;
    Ok(Place { id: args.place.name.clone().unwrap_or_else(input::node_name), source, ledger, owners })
}

/// What a file says of this machine, where one was named.
fn described(args: &AgentArgs) -> Result<Option<Node>, Failure> {
    let Some(path) = &args.machine else { return Ok(None) };
    let id = args.place.name.clone().unwrap_or_else(input::node_name);
    let file = cluster::file::read_cluster(path).map_err(Failure::input)?;
    match file.snapshot.node(&id) {
        Some(node) => Ok(Some(node.clone())),
        None => Err(Failure::Input(format!("{} describes no node '{id}'", path.display()))),
    }
}

fn setup(args: &AgentArgs, place: Place) -> Result<Setup, Failure> {
    let Place { id, source, ledger, owners } = place;
    let failing = Mutex::new(Failing::default());
    let probe = move || {
        let look = look::without_free();
        failing.lock().unwrap_or_else(PoisonError::into_inner).settle(look)
    };
    let watcher =
        SystemProfileWatcher::with_probe(args.interval, probe).map_err(Failure::internal)?.with_hot_plug();
    Ok(Setup {
        id,
        watcher,
        free: Box::new(|_| look::full().free),
        ledger,
        kept_free: ledger::KEPT_FREE,
        measure: Box::new(move |book| ledger::occupancy(book, &owners)),
        source,
    })
}

/// Logs to stderr from now on.
fn log(format: LogFormat) -> Result<(), Failure> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => EnvFilter::try_new(&text)
            .map_err(|error| Failure::Input(format!("RUST_LOG '{text}': {error}")))?,
        _ => EnvFilter::new("info"),
    };
    let logs = tracing_subscriber::fmt().with_writer(std::io::stderr).with_env_filter(filter);
    let set = match format {
        LogFormat::Json => logs.json().flatten_event(true).try_init(),
        LogFormat::Text => {
            let colours = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
            logs.with_ansi(colours).try_init()
        }
    };
    set.map_err(|error| Failure::Internal(error.to_string()))
}

/// What ends the agent.
struct Stop {
    #[cfg(unix)]
    signals: [tokio::signal::unix::Signal; 2],
}

impl Stop {
    /// Catches it from now on.
    fn catch() -> Result<Self, Failure> {
        Ok(Self {
            #[cfg(unix)]
            signals: {
                use tokio::signal::unix::{SignalKind, signal};
                let caught = |kind| signal(kind).map_err(Failure::internal);
                [caught(SignalKind::interrupt())?, caught(SignalKind::terminate())?]
            },
        })
    }

    #[cfg(unix)]
    async fn comes(mut self) {
        let [interrupt, terminate] = &mut self.signals;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }

    #[cfg(not(unix))]
    async fn comes(self) {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending::<()>().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use clap::{CommandFactory, Parser};
    use plimsoll_agent::PlanRequest;

    use crate::args::{Cli, Command};

    /// The keys that a request may have, as its own refusal of another one lists them.
    fn keys() -> BTreeSet<String> {
        let error = serde_json::from_str::<PlanRequest>("{\"no such key\": 1}").unwrap_err().to_string();
        let (_, known) = error.split_once("expected one of ").unwrap();
        known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    }

    #[test]
    fn a_request_to_the_agent_has_the_keys_that_the_command_has_flags() {
        let cli = Cli::command();
        let plan = cli.find_subcommand("plan").unwrap();
        // The agent has its own cluster, and writes no files for whoever asks.
        let not_asked = ["apply", "cluster", "out", "export", "svg", "json", "verbose", "help"];
        let flags = plan.get_arguments().filter_map(|argument| argument.get_long());
        let flags = flags.filter(|flag| !not_asked.contains(flag)).map(|flag| flag.replace('-', "_"));
        let expected: BTreeSet<String> = flags.chain(["model", "list"].map(str::to_owned)).collect();
        assert_eq!(keys(), expected);
    }

    #[test]
    fn what_a_request_to_the_agent_leaves_out_is_what_the_command_assumes() {
        let asked: PlanRequest = serde_json::from_str("{}").unwrap();
        let Command::Plan(typed) = Cli::parse_from(["plimsoll", "plan", "x"]).command else { unreachable!() };
        let (request, choice) = (&typed.request, &typed.choice);
        assert!(asked.ctx.is_none() && request.ctx.is_none());
        assert!(asked.ctx_total.is_none() && request.ctx_total.is_none());
        assert!(asked.engine.is_none() && request.engine.is_none());
        assert_eq!((asked.parallel, asked.ubatch), (request.parallel, request.ubatch));
        assert_eq!(asked.tensor_parallel, request.tensor_parallel);
        assert_eq!(plimsoll::PartPlace::from(asked.experts), typed.offload.experts.into());
        assert_eq!(plimsoll::PartPlace::from(asked.ffn), typed.offload.ffn.into());
        assert_eq!((asked.unified_kv, asked.swa_full), (request.unified_kv, request.swa_full));
        assert_eq!(asked.cache_type_k.parse(), Ok(request.cache_type_k));
        assert_eq!(asked.cache_type_v.parse(), Ok(request.cache_type_v));
        assert_eq!(
            plimsoll::model::FlashAttention::from(asked.flash_attn),
            plimsoll::model::FlashAttention::from(request.flash_attn)
        );
        assert_eq!(
            plimsoll::balance::Objective::from(asked.objective),
            plimsoll::balance::Objective::from(choice.objective)
        );
        assert_eq!(
            plimsoll::balance::Strategy::from(asked.strategy),
            plimsoll::balance::Strategy::from(choice.strategy)
        );
        assert_eq!(
            plimsoll::balance::Transfers::from(asked.transfers),
            plimsoll::balance::Transfers::from(choice.transfers)
        );
        assert_eq!(asked.pipelines, plimsoll_agent::Copies::default());
        assert_eq!(choice.pipelines, plimsoll::balance::Pipelines::One);
        assert_eq!((asked.reserve, asked.max_devices), (choice.limits.reserve, choice.limits.max_devices));
    }
}
