//! The listeners, the connections of callers, and the end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;

use super::http::{Asks, Gate, answer};
use super::metrics::Metrics;
use super::options::Settings;
use super::redis::Routes;
use super::{Bridge, say};
use crate::Stop;

/// How long a caller may take to say who it is.
const PATIENCE: Duration = Duration::from_secs(5);

/// How long a connection of HTTP/1.1 may wait for its next request: longer than Envoy keeps one (an hour), since a request
/// that meets the end of its connection is lost.
const IDLE: Duration = Duration::from_secs(70 * 60);

/// How long calls may take that are under way at the end.
const DRAIN: Duration = Duration::from_secs(10);

/// The most calls at once on one connection of HTTP/2.
const STREAMS: u32 = 1024;

/// The longest headers of a request, in bytes.
const HEADERS: u32 = 16 * 1024;

/// Serves until it is told to end.
pub async fn serve(settings: Settings) -> Result<(), Stop> {
    let no = |error: std::io::Error| Stop(format!("signals cannot be heard: {error}"));
    let mut ends = [signal(SignalKind::terminate()).map_err(no)?, signal(SignalKind::interrupt()).map_err(no)?];
    let listener = listen("--listen", settings.listen).await?;
    let admin = match settings.admin {
        Some(address) => Some(listen("--admin", address).await?),
        None => None,
    };
    let metrics = Arc::new(Metrics::default());
    let routes = Routes::to(settings.place, settings.access, settings.sentinels, metrics.clone());
    let bridge = Bridge { namespaces: settings.namespaces, routes, metrics };
    let gate = Arc::new(Gate::new(bridge, settings.secret, settings.max_waiting));
    let graceful = GracefulShutdown::new();
    let server = |asks, tls: Option<Arc<rustls::ServerConfig>>| Server {
        gate: gate.clone(),
        asks,
        tls: tls.map(TlsAcceptor::from),
        connections: Arc::new(Semaphore::new(settings.max_connections)),
    };
    let calls = server(Asks::Everything, settings.tls);
    let states = server(Asks::State, None);
    tokio::select! {
        () = calls.accept(&listener, &graceful) => {}
        () = states.accept_if(admin.as_ref(), &graceful) => {}
        () = told(&mut ends) => {}
    }
    gate.is_ending.store(true, Relaxed);
    drop((listener, admin));
    say("ending: no more connections, calls are finished");
    if timeout(DRAIN, graceful.shutdown()).await.is_err() {
        say("ending: calls are still under way, and are left");
    }
    Ok(())
}

async fn told(ends: &mut [Signal; 2]) {
    let [terminate, interrupt] = ends;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn listen(word: &str, address: SocketAddr) -> Result<TcpListener, Stop> {
    let bound = TcpListener::bind(address).await;
    let listener = bound.map_err(|error| Stop(format!("{word}: {address}: {error}; write an address that is free")))?;
    // The port may be 0: the system's choice.
    let address = listener.local_addr().unwrap_or(address);
    say(&format!("listening on {address}"));
    Ok(listener)
}

/// One listener's way to serve.
#[derive(Clone)]
struct Server {
    gate: Arc<Gate>,
    asks: Asks,
    tls: Option<TlsAcceptor>,
    connections: Arc<Semaphore>,
}

impl Server {
    async fn accept_if(&self, listener: Option<&TcpListener>, graceful: &GracefulShutdown) {
        match listener {
            Some(listener) => self.accept(listener, graceful).await,
            None => std::future::pending().await,
        }
    }

    /// Takes connections for ever.
    async fn accept(&self, listener: &TcpListener, graceful: &GracefulShutdown) {
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                // Too many files are open, most likely.
                sleep(Duration::from_millis(10)).await;
                continue;
            };
            // Beyond the bound it is closed.
            let Ok(permit) = self.connections.clone().try_acquire_owned() else { continue };
            let (server, watcher) = (self.clone(), graceful.watcher());
            tokio::spawn(async move {
                let metrics = &server.gate.bridge.metrics;
                metrics.came();
                server.welcome(stream, watcher).await;
                metrics.went();
                drop(permit);
            });
        }
    }

    async fn welcome(&self, stream: TcpStream, watcher: Watcher) {
        let _ = stream.set_nodelay(true);
        match &self.tls {
            None => self.converse(stream, watcher).await,
            Some(acceptor) => {
                if let Ok(Ok(stream)) = timeout(PATIENCE, acceptor.accept(stream)).await {
                    self.converse(stream, watcher).await;
                }
            }
        }
    }

    /// HTTP/1.1 or HTTP/2, by the first bytes.
    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, watcher: Watcher) {
        let mut builder = auto::Builder::new(TokioExecutor::new());
        builder.http1().timer(TokioTimer::new()).header_read_timeout(IDLE).max_buf_size(64 * 1024);
        builder
            .http2()
            .timer(TokioTimer::new())
            .max_concurrent_streams(STREAMS)
            .max_header_list_size(HEADERS)
            .keep_alive_interval(Duration::from_secs(30));
        let (gate, asks) = (self.gate.clone(), self.asks);
        let service = service_fn(move |request| answer(gate.clone(), asks, request));
        let connection = builder.serve_connection(TokioIo::new(stream), service).into_owned();
        // How a caller leaves is its own affair.
        let _ = watcher.watch(connection).await;
    }
}
