//! Many requests at once, over a number of connections.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::{Client, Error, Request, Response};

/// What became of one request of a [`burst`].
#[derive(Debug)]
pub struct Outcome {
    pub result: Result<Response, Error>,
    pub started: Instant,
    pub took: Duration,
}

/// Sends the requests over `connections` keep-alive connections, which are spread evenly over `ports`. Each connection
/// takes the next request as soon as it has its answer. The outcomes are in the order of the requests.
///
/// # Panics
/// Without a port or a connection.
pub fn burst(ports: &[u16], connections: usize, requests: &[Request]) -> Vec<Outcome> {
    assert!(connections > 0 && !ports.is_empty(), "a burst needs a connection and a port");
    let next = AtomicUsize::new(0);
    let outcomes = Mutex::new(Vec::with_capacity(requests.len()));
    std::thread::scope(|scope| {
        for port in ports.iter().cycle().take(connections) {
            scope.spawn(|| {
                let mut client = Client::new(*port);
                let mut own = Vec::new();
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(request) = requests.get(index) else {
                        break;
                    };
                    let started = Instant::now();
                    let result = client.send(request);
                    let took = started.elapsed();
                    own.push((index, Outcome { result, started, took }));
                }
                outcomes.lock().expect("no connection panics while it holds the lock").extend(own);
            });
        }
    });
    let mut outcomes = outcomes.into_inner().expect("as above");
    outcomes.sort_by_key(|(index, _)| *index);
    outcomes.into_iter().map(|(_, outcome)| outcome).collect()
}
