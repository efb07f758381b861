//! One Redis: its connection, which is made again with growing pauses when it breaks, and a script that runs there.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{Cmd, RedisError, RedisResult, Value};
use tokio::sync::{Mutex, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use weir::algorithm::Script;
use weir::limiter::Failure;

use super::reply::{Reply, read};
use super::{Access, Address};
use crate::bridge::metrics::Metrics;
use crate::bridge::say;

/// Between the first two attempts to connect; each further pause is twice as long, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);

/// Short enough that a Redis that comes back is served within a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A connection that lasts less is not made again at once.
const STEADY: Duration = Duration::from_secs(2);

/// How often a connection is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// A Redis that answers nothing for so long has its connection dropped, and with it what was not sent yet.
const PATIENCE: Duration = Duration::from_secs(1);

pub struct Node {
    pub address: Address,
    state: watch::Receiver<State>,
    /// The number of the newest connection that is known to be broken.
    broken: watch::Sender<u64>,
    /// How often the script was sent with its text; one at a time, since texts are long.
    loads: AtomicU64,
    loading: Mutex<()>,
    metrics: Arc<Metrics>,
    keeper: JoinHandle<()>,
}

#[derive(Clone)]
enum State {
    /// The first attempt, or the first after it broke.
    Connecting,
    /// There is a connection, the so-manyth.
    Up(MultiplexedConnection, u64),
    /// The last attempt failed.
    Down(Failure),
}

/// Whether a script may be asked for at a node that does not own the key's slot yet.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Asking {
    No,
    Yes,
}

impl Node {
    pub fn start(address: Address, access: Arc<Access>, metrics: Arc<Metrics>) -> Arc<Node> {
        let (sender, state) = watch::channel(State::Connecting);
        let (broken, is_broken) = watch::channel(0);
        let keeper = Keeper { address: address.clone(), access, metrics: metrics.clone(), state: sender, is_broken };
        let keeper = tokio::spawn(keeper.keep());
        let (loads, loading) = (AtomicU64::new(0), Mutex::new(()));
        Arc::new(Node { address, state, broken, loads, loading, metrics, keeper })
    }

    pub fn is_up(&self) -> bool {
        matches!(*self.state.borrow(), State::Up(..))
    }

    /// Runs a script, by its name or, where the node does not know it, with its text.
    pub async fn run(&self, script: &Script, key: &str, arguments: &[&str], asking: Asking) -> Reply {
        for _ in 0..2 {
            let loads = self.loads.load(Relaxed);
            let reply = self.reply_to(&command("EVALSHA", script.sha, key, arguments), asking).await;
            if reply != Reply::NoScript {
                return reply;
            }
            let _one_at_a_time = self.loading.lock().await;
            // Somebody else may have brought it meanwhile.
            if self.loads.load(Relaxed) == loads {
                let reply = self.reply_to(&command("EVAL", &script.text(), key, arguments), asking).await;
                self.loads.fetch_add(1, Relaxed);
                return reply;
            }
        }
        // It forgets scripts faster than they are asked for.
        Reply::Failed(Failure::UnknownScript)
    }

    async fn reply_to(&self, command: &Cmd, asking: Asking) -> Reply {
        match self.send(command, asking).await {
            Ok(value) => read(value, &self.address),
            Err(failure) => Reply::Failed(failure),
        }
    }

    /// Sends a command once.
    pub async fn send(&self, command: &Cmd, asking: Asking) -> Result<Value, Failure> {
        let (mut connection, number) = self.connection().await?;
        let begun = Instant::now();
        let reply = match asking {
            Asking::No => connection.send_packed_command(command).await,
            Asking::Yes => {
                // Nothing may come in between.
                let mut both = redis::pipe();
                both.cmd("ASKING").add_command(command.clone());
                let replies = connection.send_packed_commands(&both, 1, 1).await;
                replies.map(|replies| replies.into_iter().next_back().unwrap_or_default())
            }
        };
        self.metrics.redis_took(begun.elapsed());
        reply.or_else(|error| as_value(error).ok_or(())).map_err(|()| {
            self.broken.send_if_modified(|known| {
                let is_news = *known < number;
                *known = number.max(*known);
                is_news
            });
            Failure::RedisLost
        })
    }

    /// The connection; while the first attempt is under way it is waited for.
    async fn connection(&self) -> Result<(MultiplexedConnection, u64), Failure> {
        let mut state = self.state.clone();
        let state = state.wait_for(|state| !matches!(state, State::Connecting)).await;
        match state.map(|state| state.clone()) {
            Ok(State::Up(connection, number)) => Ok((connection, number)),
            Ok(State::Down(failure)) => Err(failure),
            Ok(State::Connecting) | Err(_) => Err(Failure::RedisDown),
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.keeper.abort();
    }
}

/// An error that Redis itself has answered; others leave nobody knows what on the connection.
fn as_value(error: RedisError) -> Option<Value> {
    let errors = error.into_server_errors()?;
    errors.first().map(|(_, error)| Value::ServerError(error.clone()))
}

fn command(name: &str, script: &str, key: &str, arguments: &[&str]) -> Cmd {
    let mut command = redis::cmd(name);
    command.arg(script).arg(1).arg(key).arg(arguments);
    command
}

/// Makes the connection of a node, and makes it anew.
struct Keeper {
    address: Address,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
    state: watch::Sender<State>,
    is_broken: watch::Receiver<u64>,
}

impl Keeper {
    async fn keep(mut self) {
        let (mut pause, mut number, mut said) = (FIRST_PAUSE, 0_u64, None);
        loop {
            match self.access.connect(&self.address).await {
                Ok(connection) => {
                    number = number.saturating_add(1);
                    said = None;
                    let since = Instant::now();
                    self.metrics.connected();
                    say(&format!("redis {}: connected", self.address));
                    self.state.send_replace(State::Up(connection.clone(), number));
                    self.look_after(connection, number).await;
                    self.metrics.lost();
                    say(&format!("redis {}: the connection broke; connecting again", self.address));
                    if since.elapsed() > STEADY {
                        pause = FIRST_PAUSE;
                        self.state.send_replace(State::Connecting);
                    } else {
                        self.state.send_replace(State::Down(Failure::RedisDown));
                        pause = wait(pause).await;
                    }
                }
                Err(no) => {
                    // Said once, not with each attempt.
                    if said.as_ref() != Some(&no.text) {
                        say(&format!("redis {}: no connection: {}; trying again", self.address, no.text));
                        said = Some(no.text);
                    }
                    self.state.send_replace(State::Down(no.reason));
                    pause = wait(pause).await;
                }
            }
        }
    }

    /// Returns when the connection is broken, or nothing comes from it.
    async fn look_after(&mut self, mut connection: MultiplexedConnection, number: u64) {
        // Whatever it answers, that its user may not do this included, it answers.
        let ping = redis::cmd("PING");
        loop {
            tokio::select! {
                _ = self.is_broken.wait_for(|broken| *broken >= number) => return,
                () = sleep(LOOK) => {}
            }
            let answer: Result<RedisResult<Value>, _> = timeout(PATIENCE, connection.send_packed_command(&ping)).await;
            let answers = answer.is_ok_and(|answer| answer.or_else(|error| as_value(error).ok_or(())).is_ok());
            if !answers {
                return;
            }
        }
    }
}

/// Waits from a half of it to all of it, so that bridges do not come all at once. How long the next pause is.
async fn wait(pause: Duration) -> Duration {
    let random = RandomState::new().build_hasher().finish() % 512;
    sleep(pause.mul_f64(0.5 + u16::try_from(random).map_or(0.0, f64::from) / 1024.0)).await;
    pause.saturating_mul(2).min(LONGEST_PAUSE)
}
