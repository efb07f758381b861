//! The master that sentinels name.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::node::Node;
use super::{Access, Address};
use crate::bridge::metrics::Metrics;
use crate::bridge::say;

/// How often sentinels are asked, though nothing has failed.
const EVERY: Duration = Duration::from_secs(1);

/// Not more often than this, whatever fails.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a sentinel may take.
const PATIENCE: Duration = Duration::from_millis(500);

pub struct Sentinels {
    master: Mutex<Option<Arc<Node>>>,
    wake: Notify,
}

impl Sentinels {
    pub fn start(
        addresses: Vec<Address>,
        name: String,
        to_ask: Access,
        access: Arc<Access>,
        metrics: Arc<Metrics>,
    ) -> Arc<Sentinels> {
        let sentinels = Arc::new(Sentinels { master: Mutex::new(None), wake: Notify::new() });
        tokio::spawn(follow(sentinels.clone(), addresses, name, to_ask, access, metrics));
        sentinels
    }

    pub fn master(&self) -> Option<Arc<Node>> {
        self.master.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The master may be another one.
    pub fn look(&self) {
        self.wake.notify_one();
    }
}

async fn follow(
    sentinels: Arc<Sentinels>,
    mut addresses: Vec<Address>,
    name: String,
    to_ask: Access,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
) {
    let mut is_known = true;
    loop {
        let mut found = None;
        for _ in 0..addresses.len() {
            let Some(address) = addresses.first() else { break };
            found = ask(&to_ask, address, &name).await;
            if found.is_some() {
                break;
            }
            // Whoever has answered is asked first the next time.
            addresses.rotate_left(1);
        }
        if found.is_some() != is_known {
            is_known = found.is_some();
            if !is_known {
                say("no sentinel names the master; asking again");
            }
        }
        if let Some(address) = found {
            let mut master = sentinels.master.lock().unwrap_or_else(PoisonError::into_inner);
            if master.as_ref().is_none_or(|node| node.address != address) {
                say(&format!("redis {address}: is the master"));
                *master = Some(Node::start(address, access.clone(), metrics.clone()));
            }
        }
        sleep(PAUSE).await;
        let _ = timeout(EVERY, sentinels.wake.notified()).await;
    }
}

/// Where one sentinel says that the master is.
async fn ask(access: &Access, sentinel: &Address, name: &str) -> Option<Address> {
    let answer = timeout(PATIENCE, async {
        let mut connection = access.connect(sentinel).await.ok()?;
        let mut command = redis::cmd("SENTINEL");
        command.arg("GET-MASTER-ADDR-BY-NAME").arg(name);
        connection.send_packed_command(&command).await.ok()
    });
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok(),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    match answer.await.ok()?? {
        Value::Array(parts) => match parts.as_slice() {
            [host, port] => Some(Address { host: text(host)?, port: text(port)?.parse().ok()? }),
            _ => None,
        },
        _ => None,
    }
}
