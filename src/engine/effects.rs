//! What the engine has its host do, and the names of what passes between them.

use std::rc::Rc;

use super::admission::Charge;
use super::plan::Plan;
use crate::clock::Ms;
use crate::limiter::{Failure, HttpCall};
use crate::policy::LimiterId;
use crate::response::Answer;
use crate::rules::Ask;
use crate::telemetry::{Mark, Record};

/// What a request gets, what there is to tell of it, and what was taken for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Verdict {
    /// For the client.
    pub answer: Answer,
    /// For those who watch.
    pub record: Record,
    /// What it has taken of each bucket; whoever lets it pass keeps that in an [`super::Admission`].
    pub charges: Vec<Charge>,
}

/// What becomes of a request that needs tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Arrival {
    /// This proxy has decided it.
    Decided(Verdict),
    /// It waits.
    Waits(Ticket),
}

/// What the policy alone says of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request gets this.
    Answer(Verdict),
    /// It needs tokens, and some rules let it pass uncounted: see [`super::Engine::charge`].
    Ask(Vec<Ask>, Vec<Mark>),
}

/// Whose calls to the limiter are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallOwner {
    /// The root's: they outlive every request, and a group shares one. The root is woken to make them.
    Root,
    /// The request's own: made where it arrives, shared with nobody, one at a time.
    Request,
}

/// A waiting request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub(super) u64);

/// A call to the limiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub(super) u64);

/// What the host has to do. `S` is the host's handle of a paused request.
#[derive(Debug)]
pub enum Step<S> {
    /// Have [`super::Engine::on_wake`] called soon, from where a call outlives every request.
    Wake,
    /// Have it called in other workers of this proxy, a bit for each: a call that they wait for is over.
    WakeOthers(u32),
    /// Make a call; [`super::Engine::on_reply`] wants to know how it ends, or [`super::Engine::on_lost`] that it never
    /// began.
    Call(Call),
    /// Resume or answer a paused request.
    Finish(S, Verdict),
    /// Count what has happened under a plan, apart from the fate of requests.
    Count(Rc<Plan>, Event),
}

/// A call to make.
#[derive(Debug)]
pub struct Call {
    /// Its name here.
    pub id: CallId,
    /// The policy that it is made under.
    pub plan: Rc<Plan>,
    /// Which of the policy's limiters is called.
    pub limiter: LimiterId,
    /// What is sent.
    pub http: HttpCall,
    /// When the host gives up on it.
    pub timeout: Ms,
}

/// What happens between a proxy and its limiters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// A call to a limiter has been answered, well or with the word that Redis does not know the script; or it has failed.
    CallEnded(LimiterId, CallEnd),
    /// A rule's lease has been renewed, and has so many tokens.
    Lent(usize, u64),
}

/// How a call has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEnd {
    /// With a reply of the script.
    Ok,
    /// Redis does not know the script; it is sent again with its text.
    NoScript,
    /// Not at all, or with something else.
    Failed(Failure),
}

impl CallEnd {
    /// Its name in metrics.
    pub fn name(self) -> &'static str {
        match self {
            CallEnd::Ok => "ok",
            CallEnd::NoScript => "no_script",
            CallEnd::Failed(failure) => failure.name(),
        }
    }
}
