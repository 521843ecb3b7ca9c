//! `plimsoll agent`.

pub(crate) mod args;

use std::io::IsTerminal;
use std::sync::{Mutex, PoisonError};

use plimsoll::cluster;
use plimsoll::watcher::SystemProfileWatcher;
use plimsoll_agent::{Agent, Config, Setup, Source, StartError, Token};
use tracing_subscriber::EnvFilter;

use crate::args::Cli;
use crate::failure::{Failure, Outcome};
use crate::watch::Failing;
use crate::{input, ledger, look};
use args::{AgentArgs, LogFormat};

pub(crate) fn run(args: &AgentArgs, cli: &Cli) -> Outcome {
    log(args.log_format)?;
    let token = args.token_file.as_deref().map(Token::read).transpose().map_err(Failure::input)?;
    let models = args.models.clone();
    let config = Config { listen: args.listen, token, models, ..Config::default() };
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().map_err(Failure::internal)?;
    let outcome = runtime.block_on(answer(args, config, cli.json));
    // A look at a driver that hangs is left behind.
    runtime.shutdown_background();
    outcome
}

async fn answer(args: &AgentArgs, config: Config, json: bool) -> Outcome {
    let stopped = Stop::catch()?;
    let agent = match Agent::bind(config, setup(args)?).await {
        Ok(agent) => agent,
        Err(error @ StartError::Interrupted) => return Err(Failure::internal(error)),
        Err(error) => return Err(Failure::input(error)),
    };
    let url = format!("http://{}", agent.address());
    tracing::info!(url, "listening");
    // Whoever chose port 0 reads this.
    let line = if json { format!("{{\"format\": \"plimsoll.agent/1\", \"url\": \"{url}\"}}\n") } else { format!("listening on {url}\n") };
    crate::print(&line)?;
    agent.run(stopped.comes()).await;
    tracing::info!("stopped");
    Ok(String::new())
}

fn setup(args: &AgentArgs) -> Result<Setup, Failure> {
    let source = match &args.cluster {
        Some(path) => {
            let file = cluster::file::read_cluster(path).map_err(Failure::input)?;
            Source::described(&file.snapshot).map_err(Failure::input)?
        }
        None => Source::Machine,
    };
    let failing = Mutex::new(Failing::default());
    let probe = move || {
        let look = look::without_free();
        failing.lock().unwrap_or_else(PoisonError::into_inner).settle(look)
    };
    let watcher =
        SystemProfileWatcher::with_probe(args.interval, probe).map_err(Failure::internal)?.with_hot_plug();
    let (store, owners) = ledger::Ledger::shared(args.ledger.as_deref())?;
    Ok(Setup {
        id: input::node_name(),
        watcher,
        free: Box::new(|_| look::full().free),
        ledger: store,
        kept_free: ledger::KEPT_FREE,
        measure: Box::new(move |book| ledger::occupancy(book, &owners)),
        source,
    })
}

/// Logs to stderr from now on.
fn log(format: LogFormat) -> Result<(), Failure> {
    let filter = match std::env::var("RUST_LOG") {
        Ok(text) if !text.is_empty() => {
            EnvFilter::try_new(&text).map_err(|error| Failure::Input(format!("RUST_LOG '{text}': {error}")))?
        }
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
