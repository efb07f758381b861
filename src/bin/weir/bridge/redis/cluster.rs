//! A cluster: which node serves which slot, as the cluster tells it, and as replies correct it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use redis::Value;
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

use super::node::{Asking, Node};
use super::{Access, Address};
use crate::bridge::metrics::Metrics;
use crate::bridge::say;

const SLOTS: usize = 16_384;

/// How often the cluster is asked for its slots, though nothing has failed.
const EVERY: Duration = Duration::from_secs(5);

/// Not more often than this, whatever fails.
const PAUSE: Duration = Duration::from_millis(100);

/// How long a node may take to tell.
const PATIENCE: Duration = Duration::from_millis(500);

pub struct Cluster {
    known: Mutex<Known>,
    wake: Notify,
    access: Arc<Access>,
    metrics: Arc<Metrics>,
}

struct Known {
    seeds: Vec<Address>,
    nodes: BTreeMap<Address, Arc<Node>>,
    slots: Vec<Option<Arc<Node>>>,
}

/// From the first to the last slot, and whose they are.
type Range = (usize, usize, Address);

impl Cluster {
    pub fn start(seeds: Vec<Address>, access: Arc<Access>, metrics: Arc<Metrics>) -> Arc<Cluster> {
        let known = Known { seeds: seeds.clone(), nodes: BTreeMap::new(), slots: vec![None; SLOTS] };
        let cluster = Arc::new(Cluster { known: Mutex::new(known), wake: Notify::new(), access, metrics });
        for seed in seeds {
            cluster.at(seed);
        }
        tokio::spawn(follow(cluster.clone()));
        cluster
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether every slot that is served has a node that can be asked, and some are.
    pub fn is_ready(&self) -> bool {
        let known = self.known();
        let mut served = known.slots.iter().flatten();
        served.clone().next().is_some() && served.all(|node| node.is_up())
    }

    /// The node of the key's slot; any, where it is not known, which then names it.
    pub fn node_of(&self, key: &str) -> Option<Arc<Node>> {
        let known = self.known();
        let node = known.slots.get(slot(key)).cloned().flatten();
        node.or_else(|| known.nodes.values().find(|node| node.is_up()).or(known.nodes.values().next()).cloned())
    }

    /// The node at an address, which is connected to where it is new.
    pub fn at(&self, address: Address) -> Arc<Node> {
        let nodes = &mut self.known().nodes;
        let start = || Node::start(address.clone(), self.access.clone(), self.metrics.clone());
        nodes.entry(address.clone()).or_insert_with(start).clone()
    }

    /// The key's slot is there from now on, and others may be elsewhere, too.
    pub fn moved(&self, key: &str, address: Address) -> Arc<Node> {
        let node = self.at(address);
        if let Some(slot) = self.known().slots.get_mut(slot(key)) {
            *slot = Some(node.clone());
        }
        self.look();
        node
    }

    /// What is known may be old.
    pub fn look(&self) {
        self.wake.notify_one();
    }

    /// Takes what a node has told for what is so. Nodes that serve nothing any more are left.
    fn learn(&self, ranges: &[Range]) {
        let mut slots = vec![None; SLOTS];
        for (first, last, address) in ranges {
            let node = self.at(address.clone());
            for slot in slots.iter_mut().take(last.saturating_add(1)).skip(*first) {
                *slot = Some(node.clone());
            }
        }
        let mut known = self.known();
        known.slots = slots;
        let Known { seeds, nodes, .. } = &mut *known;
        nodes.retain(|address, _| seeds.contains(address) || ranges.iter().any(|(.., served)| served == address));
    }
}

async fn follow(cluster: Arc<Cluster>) {
    let mut is_told = true;
    loop {
        let nodes: Vec<Arc<Node>> = cluster.known().nodes.values().cloned().collect();
        let mut ranges = None;
        for node in &nodes {
            if !node.is_up() && nodes.iter().any(|node| node.is_up()) {
                continue;
            }
            let slots = timeout(PATIENCE, node.send(redis::cmd("CLUSTER").arg("SLOTS"), Asking::No)).await;
            ranges = slots.ok().and_then(Result::ok).and_then(|value| read(value, &node.address));
            if ranges.is_some() {
                break;
            }
        }
        if ranges.is_some() != is_told {
            is_told = ranges.is_some();
            if !is_told {
                say("no node tells the cluster's slots, for which Redis's user needs +cluster|slots; asking again");
            }
        }
        if let Some(ranges) = ranges {
            cluster.learn(&ranges);
        }
        sleep(PAUSE).await;
        let every = if is_told { EVERY } else { PAUSE };
        let _ = timeout(every, cluster.wake.notified()).await;
    }
}

/// Reads CLUSTER SLOTS as the node at `from` tells it. None where it is no such reply, or no slot is served.
fn read(value: Value, from: &Address) -> Option<Vec<Range>> {
    let Value::Array(ranges) = value else { return None };
    let read = |range: &Value| {
        let Value::Array(parts) = range else { return None };
        let [Value::Int(first), Value::Int(last), Value::Array(master), ..] = parts.as_slice() else { return None };
        let [host, Value::Int(port), ..] = master.as_slice() else { return None };
        let host = match host {
            Value::BulkString(bytes) => String::from_utf8(bytes.clone()).ok()?,
            Value::SimpleString(text) => text.clone(),
            _ => String::new(),
        };
        // It does not know its own name, so it is called as it was found.
        let host = if host.is_empty() || host == "?" { from.host.clone() } else { host };
        let slot = |number: i64| usize::try_from(number).ok().filter(|slot| *slot < SLOTS);
        Some((slot(*first)?, slot(*last)?, Address { host, port: u16::try_from(*port).ok()? }))
    };
    let ranges: Vec<Range> = ranges.iter().map(read).collect::<Option<_>>()?;
    (!ranges.is_empty()).then_some(ranges)
}

/// The slot of a key: of what stands in its first braces, if anything does.
fn slot(key: &str) -> usize {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(tag, _)| tag);
    usize::from(crc16(tag.filter(|tag| !tag.is_empty()).unwrap_or(key).as_bytes())) % SLOTS
}

/// CRC16 of XMODEM, as Redis Cluster has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => (crc << 1) ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_redis() {
        // As CLUSTER KEYSLOT of Redis 7 gives them.
        assert_eq!(crc16(b"123456789"), 0x31c3);
        for (key, wanted) in [("foo", 12182), ("{foo}:x", 12182), ("a{foo}b{bar}", 12182), ("rl:{foo}:r:t3", 12182)] {
            assert_eq!(slot(key), wanted, "{key}");
        }
        assert_eq!(slot("{}foo"), usize::from(crc16(b"{}foo")) % SLOTS);
        assert_eq!(slot("foo{"), usize::from(crc16(b"foo{")) % SLOTS);
    }

    #[test]
    fn slots_are_read_as_they_are_told() {
        let text = |text: &str| Value::BulkString(text.as_bytes().to_vec());
        let node = |host: Value, port| Value::Array(vec![host, Value::Int(port), text("id")]);
        let range = |first, last, node| Value::Array(vec![Value::Int(first), Value::Int(last), node]);
        let from = Address { host: "here".to_owned(), port: 1 };
        let told = |ranges: Vec<Value>| read(Value::Array(ranges), &from);
        let at = |host: &str, port| Address { host: host.to_owned(), port };
        let two = told(vec![range(0, 99, node(text("a"), 7)), range(100, 16_383, node(Value::Nil, 8))]);
        assert_eq!(two, Some(vec![(0, 99, at("a", 7)), (100, 16_383, at("here", 8))]));
        assert_eq!(told(vec![range(0, 16_384, node(text("a"), 7))]), None);
        assert_eq!(told(vec![range(-1, 5, node(text("a"), 7))]), None);
        assert_eq!(told(vec![]), None);
        assert_eq!(told(vec![Value::Nil]), None);
        assert_eq!(read(Value::Nil, &from), None);
    }
}
