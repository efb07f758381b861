//! The edge: proxy-wasm contexts that read bytes, call the core, and perform the steps that it returns.
//!
//! No arithmetic and no parsing here. What differs between hosts stands behind [`Host`].

mod envoy;
mod header_map;
mod meters;
mod vm;

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, Bytes, ContextType, LogLevel, MapType};

use header_map::{HeaderMap, pays};
use meters::Meters;

use crate::engine::plan::Plan;
use crate::engine::{Admission, Call, CallOwner, Engine, Ticket, Verdict};
use crate::limiter::{Failure, HttpEnd};
use crate::local::Store;
use crate::policy::Policy;
use crate::request::{Request, asks_for_top, headers_wanted, shows_secret};
use crate::response::{Answer, Refusal};

/// What differs between hosts. As a [`Request`] it reads the request of the current context.
trait Host: Request {
    /// Whose calls to the limiter are.
    fn call_owner(&self) -> CallOwner;

    /// Time that only goes forward and that all workers of a proxy share; None where the host has none.
    fn monotonic(&self) -> Option<Duration>;

    /// What all workers of a proxy keep together. The host owns the form of a write that must not replace anything.
    fn store(&self) -> Rc<dyn Store>;

    /// How many writes of this VM have come too late since this was asked last.
    fn take_conflicts(&self) -> u64;

    /// Has the queue of this name wake the root of the current context. Gives the queue, and the number of this worker
    /// in its proxy, the one that it had before if it had one.
    fn join(&self, queue: &str, worker: Option<u32>) -> Option<(u32, Option<u32>)>;

    /// Wakes the root that a queue belongs to.
    fn wake(&self, queue: u32);

    /// Wakes other workers of the proxy, a bit for each.
    fn wake_others(&self, others: u32);

    /// Who has woken the root by its queue; None where nobody has.
    fn woken(&self, queue: u32) -> Option<Woken>;

    /// Makes a call. Gives the host's name for it.
    fn dispatch(&self, call: &Call) -> Result<u32, Failure>;

    /// How a call ended, said in the callback of that call.
    fn call_end<'b>(&self, headers: usize, body_size: usize, max_reply: usize, body: &'b mut Bytes) -> HttpEnd<'b>;

    /// All headers of the request as the host writes a map; None where it does not.
    fn header_map(&self) -> Option<Vec<u8>>;

    /// A header of the response of the service behind.
    fn response_header(&self, name: &str) -> Option<Vec<u8>>;

    /// Puts a header into the response instead of any of the same name.
    fn replace_response_header(&self, name: &str, value: &str);
}

/// Who has woken a root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// Its own worker.
    ByItself,
    /// Another one, and perhaps its own.
    ByOther,
}

/// The name of a decision in Envoy's filter state, to which Envoy adds `wasm.`.
const FILTER_STATE: &str = "weir";

/// The host that this module runs in.
const HOST: &dyn Host = &envoy::Envoy;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(Root { id, plan: None, headers_wanted: 0 }));
}}

/// One configuration of the filter.
struct Root {
    id: u32,
    plan: Option<Rc<Plan>>,
    /// How many headers are read of most requests.
    headers_wanted: usize,
}

impl RootContext for Root {
    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let state = Rc::new(RefCell::new(State::New));
        Some(Box::new(Filter {
            stream: Stream { id, plan: self.plan.clone(), shows: false, state },
            headers_wanted: self.headers_wanted,
        }))
    }

    /// Puts a policy in force. False where it is refused: the host keeps the one before, if there is one.
    fn on_configure(&mut self, _size: usize) -> bool {
        let bytes = self.get_plugin_configuration().unwrap_or_default();
        if bytes.is_empty() {
            log::error!("weir: there is no policy; write one as the configuration of the plugin");
            return false;
        }
        #[expect(clippy::disallowed_methods, reason = "the host is where the environment is read")]
        let environment = |name: &str| std::env::var(name).ok();
        match Policy::from_host(&bytes, &environment) {
            Ok(policy) => {
                self.headers_wanted = headers_wanted(&policy);
                let period = Engine::<Stream>::timer_period(&policy);
                let plan = vm::install(self.id, policy);
                let clock = if HOST.monotonic().is_some() { "the host's steady clock" } else { "the wall's clock" };
                let version = env!("CARGO_PKG_VERSION");
                log::info!("weir {version}: policy {} of this worker is in force, timed by {clock}", plan.id);
                if let Some(before) = self.plan.replace(plan) {
                    before.retire();
                }
                self.set_tick_period(Duration::from_millis(period.0));
                true
            }
            Err(problems) => {
                log::error!("weir: the policy is refused; it has {} problem(s)", problems.len());
                for problem in &problems {
                    log::error!("weir: {}", problem.for_log());
                }
                false
            }
        }
    }

    fn on_tick(&mut self) {
        vm::tick(self.id, self.plan.as_ref());
    }

    fn on_queue_ready(&mut self, queue: u32) {
        vm::woken(self.id, queue);
    }
}

impl Context for Root {
    fn on_http_call_response(&mut self, token: u32, headers: usize, body_size: usize, _trailers: usize) {
        let mut body = Bytes::new();
        let end = HOST.call_end(headers, body_size, vm::max_reply(token), &mut body);
        vm::call_ended(self.id, token, end);
    }

    fn on_done(&mut self) -> bool {
        if let Some(plan) = &self.plan {
            plan.retire();
        }
        vm::root_gone(self.id);
        true
    }
}

/// A request on its way through the filter, as the flow and the filter both know it.
#[derive(Clone, Debug)]
struct Stream {
    id: u32,
    /// What was in force when it came.
    plan: Option<Rc<Plan>>,
    /// Whether its response tells what was decided, and of whom.
    shows: bool,
    state: Rc<RefCell<State>>,
}

#[derive(Debug)]
enum State {
    /// Nothing has been decided.
    New,
    /// It is paused, since then.
    Waiting(Ticket, Option<Duration>),
    /// It goes on, until its response has ended.
    Passed(Admission),
    /// The filter has answered it, or it is over.
    Over,
}

struct Filter {
    stream: Stream,
    headers_wanted: usize,
}

impl HttpContext for Filter {
    fn on_http_request_headers(&mut self, headers: usize, _end_of_stream: bool) -> Action {
        let Some(plan) = self.stream.plan.clone() else {
            self.stream.refuse(Refusal::without_policy(), None);
            return Action::Pause;
        };
        #[cfg(feature = "trap")]
        if HOST.header("x-weir-trap").is_some() {
            std::process::abort();
        }
        #[cfg(feature = "trap")]
        if let Some(most) = HOST.header("x-weir-finish-at-once") {
            vm::finish_at_once(std::str::from_utf8(&most).ok().and_then(|most| most.parse().ok()).unwrap_or_default());
        }
        let meters = vm::meters(&plan).filter(|meters| meters.is_sampled());
        let began = if meters.is_some() { HOST.monotonic() } else { None };
        let action = match pays(self.headers_wanted, headers) {
            true => self.stream.decide(&plan, &HeaderMap::of(HOST)),
            false => self.stream.decide(&plan, HOST),
        };
        if let (Some(meters), Some(took)) = (meters, vm::since(began)) {
            meters.own(took);
        }
        action
    }

    fn on_http_response_headers(&mut self, _headers: usize, end_of_stream: bool) -> Action {
        if let State::Passed(admission) = &*self.stream.state.borrow() {
            let sent = |name: &str| HOST.response_header(name);
            admission.on_response(&sent, end_of_stream, &|name, value| HOST.replace_response_header(name, value));
        }
        Action::Continue
    }

    /// The stream has ended: with its response, or because its client has left.
    fn on_log(&mut self) {
        if let State::Waiting(ticket, _) = self.stream.state.replace(State::Over) {
            vm::ended(ticket);
        }
    }
}

impl Context for Filter {}

impl Stream {
    /// A request has come.
    fn decide(&mut self, plan: &Rc<Plan>, request: &dyn Request) -> Action {
        if let Some(observe) = &plan.policy.observe {
            self.shows = shows_secret(observe, request);
            if self.shows {
                // The service behind has no need to know it.
                let _ = hostcalls::set_map_value(MapType::HttpRequestHeaders, &observe.debug_header, None);
            }
            if self.shows && asks_for_top(observe, request) {
                self.tell(&vm::top(plan));
                return Action::Pause;
            }
        }
        let verdict = vm::on_request(plan, request, self);
        verdict.map_or(Action::Pause, |verdict| self.perform(verdict))
    }

    /// Performs what was decided about the request. The effective context must be this stream.
    fn perform(&self, verdict: Verdict) -> Action {
        let Verdict { answer, record, charges } = verdict;
        let observe = self.plan.as_ref().and_then(|plan| Some((&plan.policy, plan.policy.observe.as_ref()?)));
        let told = observe.and_then(|(policy, observe)| {
            if observe.filter_state {
                // It fails only where there is no stream.
                let _ = hostcalls::set_property(vec![FILTER_STATE], Some(record.line(policy).as_bytes()));
            }
            self.shows.then(|| record.lines(policy))
        });
        match answer {
            Answer::Pass(headers) => {
                if let Some(plan) = &self.plan {
                    let admission = Admission { plan: plan.clone(), headers, told, charges };
                    self.state.replace(State::Passed(admission));
                }
                Action::Continue
            }
            Answer::Refuse(refusal) => {
                self.refuse(refusal, told);
                Action::Pause
            }
        }
    }

    /// Performs what was decided about the request while it was paused.
    fn resume(&self, verdict: Verdict) {
        if self.perform(verdict) == Action::Continue {
            // Fails only for a kind of stream that is not HTTP.
            let _ = hostcalls::resume_http_request();
        }
    }

    /// Answers a request that asks the filter itself.
    fn tell(&self, text: &str) {
        self.state.replace(State::Over);
        let headers = vec![("content-type", "application/json"), ("cache-control", "no-store")];
        let _ = hostcalls::send_http_response(200, headers, Some(text.as_bytes()));
    }

    /// Takes the time of a wait that is over.
    fn waited(&self, meters: &Meters) {
        if let State::Waiting(_, since) = &*self.state.borrow()
            && let Some(took) = vm::since(*since)
        {
            meters.waited(took);
        }
    }

    /// Answers the request, whose headers can be read as long as it is paused.
    fn refuse(&self, mut refusal: Refusal, told: Option<String>) {
        self.state.replace(State::Over);
        refusal.fit(HOST);
        let mut headers: Vec<_> = refusal.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let observe = self.plan.as_ref().and_then(|plan| plan.policy.observe.as_ref());
        if let (Some(told), Some(observe)) = (&told, observe) {
            headers.push((&observe.debug_header, told));
        }
        let _ = hostcalls::send_http_response(refusal.status.into(), headers, Some(refusal.body.as_bytes()));
    }
}
