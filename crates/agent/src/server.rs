//! The door: connections in, answers out, and an orderly end.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use plimsoll::residency::StoreError;
use plimsoll::watcher::{OwnedTask, off_the_runtime};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;

use crate::app::{App, Setup};
use crate::models::ModelsError;
use crate::stall::Stalling;
use crate::{Config, Limits, api, keeper};

/// The longest head of a request, in bytes.
const HEAD: usize = 32 << 10;

/// What somebody hears for whom there is no place.
const FULL: &str = "{\"error\":\"too many connections at once\"}";

/// Why an agent does not start. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// Others than this machine could ask, and nobody would ask them who they are.
    #[error(
        "{address} can be reached from other machines, and without a token anybody there could ask; give a token, or listen on 127.0.0.1"
    )]
    Open {
        /// Where it was to listen.
        address: SocketAddr,
    },
    /// It cannot listen there.
    #[error("cannot listen on {address}")]
    Listen {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The folder of models cannot be read.
    #[error(transparent)]
    Models(#[from] ModelsError),
    /// The ledger does not answer.
    #[error(transparent)]
    Ledger(#[from] StoreError),
    /// The machine was not brought into the cluster.
    #[cfg(feature = "etcd")]
    #[error(transparent)]
    Join(#[from] plimsoll::live::EnterError),
    /// The start panicked, or the runtime ended.
    #[error("the start was not finished")]
    Interrupted,
}

/// An agent that listens.
#[must_use = "nobody is answered before it is run"]
pub struct Agent {
    listener: TcpListener,
    address: SocketAddr,
    app: Arc<App>,
    stop: watch::Sender<bool>,
    keeps: Vec<OwnedTask>,
}

impl std::fmt::Debug for Agent {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Agent").field("address", &self.address).finish_non_exhaustive()
    }
}

impl StartError {
    /// Whether a request was understood and refused: another machine has this one's name.
    pub fn is_refusal(&self) -> bool {
        match self {
            #[cfg(feature = "etcd")]
            Self::Join(error) => crate::joined::is_refused(error),
            _ => false,
        }
    }
}

impl Agent {
    /// Looks at the machine, takes its ledger, and listens; nobody is answered before [`Agent::run`].
    ///
    /// # Errors
    ///
    /// See [`StartError`].
    ///
    /// # Panics
    ///
    /// We are on no runtime of tokio, or on one without time or network.
    pub async fn bind(config: Config, setup: Setup) -> Result<Self, StartError> {
        let address = config.listen;
        if !is_loopback(address.ip()) && config.token.is_none() {
            return Err(StartError::Open { address });
        }
        let listen = |source| StartError::Listen { address, source };
        let listener = TcpListener::bind(address).await.map_err(listen)?;
        let bound = listener.local_addr().map_err(listen)?;
        let (stop, stopping) = watch::channel(false);
        let starting = off_the_runtime(move || App::start(config, setup, bound, stopping)).await;
        let (app, events) = starting.ok_or(StartError::Interrupted)??;
        let app = Arc::new(app);
        let mut keeps = vec![keeper::follow(&app, events), keeper::look(&app)];
        match &app.joined {
            Some(joined) => keeps.extend(joined.keep(&app)),
            None => keeps.push(keeper::count(&app)),
        }
        Ok(Self { listener, address: bound, app, stop, keeps })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Answers until `stop` comes; then nobody new is let in, event streams end, and answers under way have
    /// [`Limits::stop_time`] to end. A machine that was brought into a cluster leaves it. Bookings stay as they are.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let router = api::router(&self.app);
        let mut connections = JoinSet::new();
        let places = Arc::new(Semaphore::new(self.app.limits.connections));
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                Some(_) = connections.join_next() => {}
                accepted = self.listener.accept() => match accepted {
                    Ok((stream, _)) => match Arc::clone(&places).try_acquire_owned() {
                        Ok(place) => {
                            let (router, limits) = (router.clone(), self.app.limits.clone());
                            let stop = self.stop.subscribe();
                            connections.spawn(async move {
                                serve(stream, router, &limits, stop).await;
                                drop(place);
                            });
                        }
                        Err(_) => refuse(stream).await,
                    },
                    Err(error) => {
                        tracing::warn!("a connection was not accepted: {error}");
                        // Where files have run out, the next attempt fails as fast.
                        tokio::time::sleep(Duration::from_millis(50)).await;
                    }
                },
            }
        }
        drop(self.listener);
        tracing::info!(connections = connections.len(), "stopping");
        self.stop.send_replace(true);
        self.app.plans.close();
        let all = async { while connections.join_next().await.is_some() {} };
        if timeout(self.app.limits.stop_time, all).await.is_err() {
            tracing::warn!("answers under way were not finished in time");
        }
        drop(self.keeps);
        if self.app.joined.is_some() {
            let left = Arc::clone(&self.app).blocking(|app| {
                if let Some(joined) = &app.joined {
                    joined.leave();
                }
            });
            if left.await.is_err() {
                tracing::warn!("the machine leaves the cluster when its lease ends");
            }
        }
    }
}

/// Whether only this machine can reach an address.
pub(crate) fn is_loopback(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => address.is_loopback(),
        IpAddr::V6(address) => {
            address.is_loopback() || address.to_ipv4_mapped().is_some_and(|address| address.is_loopback())
        }
    }
}

/// Answers one connection until it ends, or the answer under way has ended when the agent stops.
async fn serve(stream: TcpStream, router: Router, limits: &Limits, mut stop: watch::Receiver<bool>) {
    // Small answers go out at once.
    if let Err(error) = stream.set_nodelay(true) {
        tracing::debug!("{error}");
    }
    let service = TowerToHyperService::new(router);
    let io = TokioIo::new(Stalling::new(stream, limits.stall_time));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_buf_size(HEAD)
        .serve_connection(io, service);
    tokio::pin!(connection);
    let stopping = async {
        match stop.wait_for(|stop| *stop).await {
            // Without somebody who could say so any more, it is so.
            Ok(_) | Err(_) => {}
        }
    };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stopping => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!("a connection ended: {}", crate::error::chain(&error));
    }
}

/// Says that there is no place, as far as that can be said without waiting.
async fn refuse(mut stream: TcpStream) {
    let head = "HTTP/1.1 503 Service Unavailable\r\nretry-after: 1\r\nconnection: close\r\ncontent-type: application/json";
    let text = format!("{head}\r\ncontent-length: {}\r\n\r\n{FULL}", FULL.len());
    // Who does not take it at once is not waited for.
    let _told = timeout(Duration::from_millis(100), stream.write_all(text.as_bytes())).await;
}
