//! What may happen next.

use super::state::{Small, Waiting};
use crate::clock::START;

/// One thing that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Choice {
    Arrive {
        worker: usize,
        cost: u64,
    },
    Reach(usize),
    /// The limiter executes the call and the reply is there, with nothing between.
    Serve(usize),
    LoseCall(usize),
    Back(usize),
    /// The reply comes, and will come once more.
    BackAndAgain(usize),
    LoseReply(usize),
    /// It is told that another call has found no script, whether it has been executed, will be, or both it and the second
    /// try will.
    Astray(usize),
    Leave(usize),
    Wipe(usize),
    /// A worker takes the cost of a request, which another rule will refuse.
    Take(usize),
    /// And puts it back.
    PutBack(usize),
    /// Nothing happens until this moment.
    Pass(u64),
}

impl Small<'_> {
    pub(super) fn choices(&self) -> Vec<Choice> {
        let mut choices = Vec::new();
        if self.left.requests > 0 {
            // Workers that have done nothing yet are all the same, those of one proxy and whole proxies.
            let used = (0..self.flows.len()).rev().find(|worker| self.has_worked(*worker)).map_or(0, |used| used + 1);
            for worker in 0..self.flows.len().min(self.ground.case.workers.max(used + 1)) {
                choices.extend(self.ground.case.costs.iter().map(|cost| Choice::Arrive { worker, cost: *cost }));
            }
        }
        for (number, message) in self.messages.iter().enumerate().filter(|(_, message)| !message.lost) {
            if self.left.astray > 0 && !message.over && !message.sent.0.by_text {
                choices.push(Choice::Astray(number));
            }
            match &message.reply {
                None => {
                    choices.extend([Choice::Serve(number), Choice::Reach(number)]);
                    if self.left.lost > 0 && !message.over {
                        choices.push(Choice::LoseCall(number));
                    }
                }
                Some(_) => {
                    choices.push(Choice::Back(number));
                    if self.left.doubled > 0 && !message.over {
                        choices.push(Choice::BackAndAgain(number));
                    }
                    if self.left.lost > 0 && !message.over {
                        choices.push(Choice::LoseReply(number));
                    }
                }
            }
        }
        if self.left.leave > 0 {
            let waits = |(number, waiting): (usize, &Option<Waiting>)| waiting.is_some().then_some(number);
            choices.extend(self.waiting.iter().enumerate().filter_map(waits).map(Choice::Leave));
        }
        if self.left.wipe > 0 {
            choices.extend((0..self.shared.len()).map(Choice::Wipe));
        }
        if self.left.stall > 0 {
            choices.extend((0..self.flows.len()).filter(|worker| self.has_worked(*worker)).map(Choice::Take));
        }
        choices.extend((0..self.stalled.len()).map(Choice::PutBack));
        if self.left.pass > 0 {
            choices.extend(self.moments().into_iter().map(Choice::Pass));
        }
        choices
    }

    /// The next moment at which a worker has something to end.
    pub(super) fn due(&self) -> Option<u64> {
        let deadlines = self.waiting.iter().flatten().map(|waiting| waiting.arrived + self.ground.timeout);
        let ends = self.messages.iter().filter(|message| !message.over);
        let ends = ends.flat_map(|message| [message.sent_at + self.ground.timeout, message.ends]);
        deadlines.chain(ends).filter(|moment| *moment > self.now).min()
    }

    fn has_worked(&self, worker: usize) -> bool {
        self.shared[self.proxy(worker)].bytes() > self.bytes_at_first
            || self.messages.iter().any(|message| message.worker == worker)
            || self.waiting.iter().flatten().any(|waiting| waiting.worker == worker)
    }

    /// Until when nothing may happen: a token more, the next deadline or end of a call, the end of a lease, the moment
    /// before it, and the end of the key.
    fn moments(&self) -> Vec<u64> {
        let limit = self.ground.case.limit;
        let clock = START + self.now;
        let mut moments = vec![self.now + limit.period_ms.div_ceil(limit.requests)];
        moments.extend(self.due());
        let ends = self
            .roots
            .iter()
            .flat_map(|root| root.slots.iter().map(|slot| slot.end).chain(root.expires_at.map(|at| at + 1)));
        for end in ends.filter(|end| *end > clock + 1) {
            moments.extend([end - START - 1, end - START]);
        }
        if self.ground.case.windows {
            let end = (self.now / limit.period_ms + 1) * limit.period_ms;
            moments.extend([end - 1, end]);
        }
        moments.sort_unstable();
        moments.dedup();
        moments.retain(|moment| *moment > self.now);
        moments
    }
}
