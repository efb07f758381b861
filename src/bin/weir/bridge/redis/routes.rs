//! Which node a key is at, and a script's way there.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;
use weir::algorithm::Script;
use weir::limiter::Failure;

use super::cluster::Cluster;
use super::node::{Asking, Node};
use super::reply::Reply;
use super::sentinels::Sentinels;
use super::{Access, Address};
use crate::bridge::metrics::Metrics;

/// How often a call is sent on because a node has told it to go elsewhere, or to come again.
const TURNS: usize = 8;

/// Before a call comes again.
const PAUSE: Duration = Duration::from_millis(10);

/// Where Redis is.
pub enum Place {
    One(Address),
    Cluster(Vec<Address>),
    Sentinels { addresses: Vec<Address>, master: String },
}

/// The ways to Redis.
pub enum Routes {
    One(Arc<Node>),
    Cluster(Arc<Cluster>),
    Sentinels(Arc<Sentinels>),
}

impl Routes {
    pub fn to(place: Place, access: Access, sentinels: Access, metrics: Arc<Metrics>) -> Routes {
        let access = Arc::new(access);
        match place {
            Place::One(address) => Routes::One(Node::start(address, access, metrics)),
            Place::Cluster(seeds) => Routes::Cluster(Cluster::start(seeds, access, metrics)),
            Place::Sentinels { addresses, master } => {
                Routes::Sentinels(Sentinels::start(addresses, master, sentinels, access, metrics))
            }
        }
    }

    /// Whether a call would find a connection.
    pub fn is_ready(&self) -> bool {
        match self {
            Routes::One(node) => node.is_up(),
            Routes::Cluster(cluster) => cluster.is_ready(),
            Routes::Sentinels(sentinels) => sentinels.master().is_some_and(|node| node.is_up()),
        }
    }

    /// Runs a script at a key. It is sent again only where a reply proves that it has not run.
    pub async fn run(&self, script: &Script, key: &str, arguments: &[&str]) -> Result<Vec<i64>, Failure> {
        let mut node = self.node_of(key)?;
        let mut asking = Asking::No;
        for _ in 0..TURNS {
            match node.run(script, key, arguments, asking).await {
                Reply::Numbers(numbers) => return Ok(numbers),
                Reply::NoScript => return Err(Failure::UnknownScript),
                Reply::Failed(failure) => {
                    self.failed(failure);
                    return Err(failure);
                }
                Reply::Moved(address) => {
                    (node, asking) = (self.moved(key, address).ok_or(Failure::Redis)?, Asking::No);
                }
                Reply::Ask(address) => (node, asking) = (self.at(address).ok_or(Failure::Redis)?, Asking::Yes),
                Reply::TryAgain => sleep(PAUSE).await,
            }
        }
        Err(Failure::TryAgain)
    }

    fn node_of(&self, key: &str) -> Result<Arc<Node>, Failure> {
        let node = match self {
            Routes::One(node) => Some(node.clone()),
            Routes::Cluster(cluster) => cluster.node_of(key),
            Routes::Sentinels(sentinels) => sentinels.master(),
        };
        node.ok_or(Failure::RedisDown)
    }

    /// A failure may mean that what is known of the nodes is old.
    fn failed(&self, failure: Failure) {
        let may_be_old = matches!(
            failure,
            Failure::RedisDown | Failure::RedisLost | Failure::ReadOnly | Failure::ClusterDown | Failure::MasterDown
        );
        match self {
            Routes::Cluster(cluster) if may_be_old => cluster.look(),
            Routes::Sentinels(sentinels) if may_be_old => sentinels.look(),
            _ => {}
        }
    }

    /// The key's slot is there from now on.
    fn moved(&self, key: &str, address: Address) -> Option<Arc<Node>> {
        match self {
            Routes::Cluster(cluster) => Some(cluster.moved(key, address)),
            _ => None,
        }
    }

    fn at(&self, address: Address) -> Option<Arc<Node>> {
        match self {
            Routes::Cluster(cluster) => Some(cluster.at(address)),
            _ => None,
        }
    }
}
