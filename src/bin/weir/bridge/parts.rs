//! The parts of a call: each is looked at and run on its own, side by side, and is answered at the call's deadline at last.

use futures_util::future::join_all;
use tokio::time::{Instant, timeout_at};
use weir::limiter::Failure;
use weir::limiter::redis::bridge::{Answer, Call, Part, is_in, script};

use super::Bridge;

/// What became of each, in order. On one connection to a node, commands are pipelined.
pub async fn run(bridge: &Bridge, call: &Call<'_>, deadline: Instant) -> Vec<Answer> {
    join_all(call.parts.iter().map(|part| one(bridge, part, deadline))).await
}

async fn one(bridge: &Bridge, part: &Part<'_>, deadline: Instant) -> Answer {
    let result = match (script(part.script), bridge.namespaces.iter().any(|namespace| is_in(part.key, namespace))) {
        (_, false) => Err(Failure::ForeignKey),
        (None, true) => Err(Failure::UnknownScript),
        (Some(script), true) => {
            let run = bridge.routes.run(script, part.key, &part.arguments);
            timeout_at(deadline, run).await.unwrap_or(Err(Failure::Late))
        }
    };
    bridge.metrics.part(result.as_ref().err().copied());
    Answer { number: Some(part.number), result }
}
