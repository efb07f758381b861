//! What all contexts of one VM share: the flow, the calls that are out, and the queue that wakes a root.
//!
//! The state is borrowed only between calls to the host that could call back; shared data calls back for memory alone.
//!
//! Several roots may live in one VM: two listeners, or an old and a new policy. The queue belongs to the VM and wakes
//! the root that registered it last. When a root goes, its calls are lost without a word and end with the next wake-up;
//! where it was the one to be woken, another root's next tick takes over the queue.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::rc::{Rc, Weak};
use std::time::{Duration, UNIX_EPOCH};

use proxy_wasm::hostcalls;

use super::meters::Meters;
use super::{HOST, State, Stream, Woken};
use crate::clock::{Clock, Ms, Now};
use crate::engine::plan::Plan;
use crate::engine::{Arrival, CallId, Engine, Step, Ticket, Verdict};
use crate::limiter::{Failure, HttpEnd};
use crate::policy::{LimiterId, Policy};
use crate::request::Request;
use crate::telemetry::Mark;

/// At most one line of log about the failures of a limiter in this time, and one about keys.
const BETWEEN_WARNINGS: Ms = Ms(10_000);

thread_local! {
    /// Apart, since the engine asks for the time, too.
    static CLOCK: RefCell<Clock> = RefCell::default();

    static VM: RefCell<Vm> = RefCell::new(Vm {
        engine: Engine::new(HOST.call_owner(), random(), 0),
        worker: None,
        calls: Vec::new(),
        meters: Vec::new(),
        plans: 0,
        queue: None,
        waker: None,
        warned: Vec::new(),
        warned_of_key: None,
    });
}

struct Vm {
    engine: Engine<Stream>,
    /// Its number in this proxy, by which others wake it.
    worker: Option<u32>,
    /// By the host's token.
    calls: Vec<(u32, Out)>,
    /// As long as somebody has the plan.
    meters: Vec<(Weak<Plan>, Rc<Meters>)>,
    plans: u64,
    queue: Option<Queue>,
    /// The root that the queue wakes.
    waker: Option<u32>,
    /// Limiters that were warned of, and when.
    warned: Vec<(String, Ms)>,
    warned_of_key: Option<Ms>,
}

/// A call that is out.
struct Out {
    id: CallId,
    /// The root that made it.
    root: u32,
    limiter: LimiterId,
    /// Longer replies are not read.
    max_reply: usize,
    sent: Option<Duration>,
    meters: Option<Rc<Meters>>,
}

#[derive(Clone)]
struct Queue {
    name: String,
    id: u32,
}

fn with<T>(act: impl FnOnce(&mut Vm) -> T) -> T {
    VM.with_borrow_mut(act)
}

/// Puts a policy in force for a root of this VM.
pub(super) fn install(root: u32, policy: Policy) -> Rc<Plan> {
    let meters = Rc::new(Meters::define(&policy));
    let known = with(|vm| vm.queue.as_ref().map(|queue| queue.name.clone()));
    // All filters of a proxy may share one space of names, and each VM needs a queue of its own.
    let new = || format!("weir.{}.wake.{:016x}{:016x}", policy.namespace, random(), random());
    register_queue(root, known.unwrap_or_else(new));
    with(|vm| {
        vm.plans = vm.plans.saturating_add(1);
        let plan = Rc::new(Plan::new(vm.plans, policy, HOST.store(), (random(), random())));
        vm.meters.retain(|(plan, _)| plan.strong_count() > 0);
        vm.meters.push((Rc::downgrade(&plan), meters));
        plan
    })
}

/// Has the queue of this name wake this root from now on.
fn register_queue(root: u32, name: String) {
    let known = with(|vm| vm.worker);
    if let Some((id, worker)) = HOST.join(&name, known) {
        with(|vm| {
            vm.queue = Some(Queue { name, id });
            vm.waker = Some(root);
            vm.worker = worker;
            vm.engine.set_worker(worker.unwrap_or_default());
        });
    }
}

/// A request has come: gives its verdict, or None where it waits and has to be paused.
pub(super) fn on_request(plan: &Rc<Plan>, request: &dyn Request, stream: &Stream) -> Option<Verdict> {
    let read: Cell<Option<Now>> = Cell::new(None);
    let clock = || {
        let now = now();
        read.set(Some(now));
        now
    };
    let (arrival, steps) = with(|vm| vm.engine.on_request(plan, request, stream.clone(), &clock));
    let verdict = match arrival {
        Arrival::Decided(verdict) => {
            count(plan, &verdict, read.get());
            Some(verdict)
        }
        Arrival::Waits(ticket) => {
            stream.state.replace(State::Waiting(ticket, HOST.monotonic()));
            None
        }
    };
    if !steps.is_empty() {
        perform(stream.id, steps, read.get().unwrap_or_default());
    }
    verdict
}

/// Counts what became of a request, and says where a limiter's failure has decided it.
fn count(plan: &Rc<Plan>, verdict: &Verdict, now: Option<Now>) {
    plan.watch(&verdict.record);
    if let Some(meters) = meters(plan) {
        meters.decided(&plan.policy, &verdict.record, now.map(|now| now.mono));
    }
    let Some(now) = now else {
        return;
    };
    for mark in &verdict.record.marks {
        match mark.degraded {
            Some(Failure::BadKey) => warn_of_key(plan, mark, now),
            Some(failure) => {
                // All buckets of one rule and tenant are in one limiter.
                let of_rule = verdict.charges.iter().find(|charge| charge.ask.scope() == mark.scope);
                if let Some(charge) = of_rule {
                    warn(&plan.policy.limiters.get(charge.ask.bucket.limiter).name, failure, now);
                }
            }
            None => {}
        }
    }
}

/// Has one callback finish as many as a test wants, who looks for what the host bears.
#[cfg(feature = "trap")]
pub(super) fn finish_at_once(most: usize) {
    with(|vm| vm.engine.finish_at_most(most));
}

pub(super) fn ended(ticket: Ticket) {
    with(|vm| vm.engine.on_end(ticket));
}

pub(super) fn woken(root: u32, queue: u32) {
    let Some(woken) = HOST.woken(queue) else {
        return;
    };
    let now = now();
    let steps = with(|vm| match woken {
        Woken::ByItself => vm.engine.on_wake(now),
        Woken::ByOther => vm.engine.on_wake_by_other(now),
    });
    perform(root, steps, now);
}

pub(super) fn tick(root: u32, plan: Option<&Rc<Plan>>) {
    let orphaned = with(|vm| vm.queue.as_ref().filter(|_| vm.waker.is_none()).map(|queue| queue.name.clone()));
    if let Some(name) = orphaned {
        register_queue(root, name);
    }
    let now = now();
    if let Some(plan) = plan {
        plan.refresh(now.mono);
    }
    let steps = with(|vm| vm.engine.on_timer(now));
    perform(root, steps, now);
    if let Some((plan, meters)) = plan.and_then(|plan| Some((plan, meters(plan)?))) {
        meters.tick(plan, HOST.take_conflicts(), now.mono);
        plan.merge_top(now.mono);
    }
}

/// The longest reply that a call may have; 0 where nobody waits for it any more.
pub(super) fn max_reply(token: u32) -> usize {
    with(|vm| vm.calls.iter().find(|(of, _)| *of == token).map_or(0, |(_, out)| out.max_reply))
}

pub(super) fn call_ended(root: u32, token: u32, end: HttpEnd) {
    let out = with(|vm| {
        let at = vm.calls.iter().position(|(of, _)| *of == token)?;
        Some(vm.calls.swap_remove(at).1)
    });
    let Some(out) = out else {
        return;
    };
    if let (Some(meters), Some(took)) = (&out.meters, since(out.sent)) {
        meters.call_took(out.limiter, took);
    }
    let now = now();
    let steps = with(|vm| vm.engine.on_reply(out.id, end, now));
    perform(root, steps, now);
}

/// A root goes, and its calls with it.
pub(super) fn root_gone(root: u32) {
    let steps = with(|vm| {
        let calls = std::mem::take(&mut vm.calls);
        let (lost, kept): (Vec<_>, _) = calls.into_iter().partition(|(_, out)| out.root == root);
        vm.calls = kept;
        vm.waker = vm.waker.filter(|waker| *waker != root);
        lost.into_iter().flat_map(|(_, out)| vm.engine.on_lost(out.id, None)).collect()
    });
    perform(root, steps, now());
}

/// Performs steps in order, in the name of the context that this callback belongs to.
fn perform(context: u32, steps: Vec<Step<Stream>>, now: Now) {
    let mut steps = VecDeque::from(steps);
    let mut effective = context;
    while let Some(step) = steps.pop_front() {
        match step {
            Step::Wake => {
                if let Some(queue) = with(|vm| vm.queue.clone()) {
                    HOST.wake(queue.id);
                }
            }
            Step::WakeOthers(others) => HOST.wake_others(others),
            Step::Call(call) => {
                // The host would give the call to the stream that was finished last, and end it with that stream.
                if effective != context && hostcalls::set_effective_context(context).is_ok() {
                    effective = context;
                }
                match HOST.dispatch(&call) {
                    Ok(token) => {
                        let (sent, meters) = (HOST.monotonic(), meters(&call.plan));
                        let (limiter, max_reply) = (call.limiter, call.plan.transport(call.limiter).max_reply());
                        let out = Out { id: call.id, root: context, limiter, max_reply, sent, meters };
                        with(|vm| vm.calls.push((token, out)));
                    }
                    Err(failure) => steps.extend(with(|vm| vm.engine.on_lost(call.id, Some(failure)))),
                }
            }
            Step::Finish(stream, verdict) => {
                if let Some(plan) = &stream.plan {
                    count(plan, &verdict, Some(now));
                    if let Some(meters) = meters(plan) {
                        stream.waited(&meters);
                    }
                }
                // An error means that the stream is gone.
                if hostcalls::set_effective_context(stream.id).is_ok() {
                    effective = stream.id;
                    stream.resume(verdict);
                }
            }
            Step::Count(plan, event) => {
                if let Some(meters) = meters(&plan) {
                    meters.happened(&plan.policy, event);
                }
            }
        }
    }
}

/// Who has come most in the last minutes: see [`Plan::top`].
pub(super) fn top(plan: &Plan) -> String {
    plan.top(now().mono)
}

/// The metrics of a plan of this VM.
pub(super) fn meters(plan: &Rc<Plan>) -> Option<Rc<Meters>> {
    let is_of = |(of, _): &&(Weak<Plan>, _)| std::ptr::eq(of.as_ptr(), Rc::as_ptr(plan));
    with(|vm| vm.meters.iter().find(is_of).map(|(_, meters)| meters.clone()))
}

/// How long ago that was, where the host can tell.
pub(super) fn since(then: Option<Duration>) -> Option<Duration> {
    Some(HOST.monotonic()?.saturating_sub(then?))
}

/// Says now and then that a limiter fails, and how; never a line a request.
fn warn(limiter: &str, failure: Failure, now: Now) {
    let due = with(|vm| {
        // Those of policies that were replaced go by and by.
        vm.warned.retain(|(_, last)| now.mono - *last < BETWEEN_WARNINGS);
        let due = vm.warned.iter().all(|(name, _)| name != limiter);
        if due {
            vm.warned.push((limiter.to_owned(), now.mono));
        }
        due
    });
    if due {
        log::warn!("weir: the limiter {limiter} failed ({}): on_error decides", failure.name());
    }
}

/// Says now and then of which rule and entry a key holds something else, and not whose it is.
fn warn_of_key(plan: &Plan, mark: &Mark, now: Now) {
    let due = with(|vm| {
        let due = vm.warned_of_key.is_none_or(|last| now.mono - last >= BETWEEN_WARNINGS);
        if due {
            vm.warned_of_key = Some(now.mono);
        }
        due
    });
    if due {
        let [rule, class, tier] = mark.scope.names(&plan.policy);
        log::warn!(
            "weir: a Redis key of rule {rule}, class {class}, tier {tier} holds something that weir did not write: \
             on_error decides for that tenant; find the key by the debug header and delete it"
        );
    }
}

fn now() -> Now {
    let wall = hostcalls::get_current_time().ok().and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let wall = wall.and_then(|wall| u64::try_from(wall.as_millis()).ok()).unwrap_or_default();
    let now = CLOCK.with_borrow_mut(|clock| clock.read(Ms(wall)));
    let mono = HOST.monotonic().and_then(|time| u64::try_from(time.as_millis()).ok()).map(Ms);
    Now { mono: mono.unwrap_or(now.mono), ..now }
}

/// A random number of the host's. Every new state of the standard hasher is keyed at random.
fn random() -> u64 {
    RandomState::new().hash_one(0_u8)
}
