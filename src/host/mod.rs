//! The edge: proxy-wasm contexts that read bytes, call the core, and perform the steps that it returns.
//!
//! No arithmetic and no parsing here. What differs between hosts stands behind [`Host`].

mod envoy;
mod meters;
mod shared_data;
mod vm;
mod workers;

use std::cell::RefCell;
use std::rc::Rc;

use proxy_wasm::hostcalls;
use proxy_wasm::traits::{Context, HttpContext, RootContext};
use proxy_wasm::types::{Action, Bytes, ContextType, LogLevel, MapType};

use crate::answer::{self, Answer, Header, Refusal};
use crate::clock::Ms;
use crate::flow::{CallOwner, Decision, Flow, Ticket, decide};
use crate::limiter::HttpEnd;
use crate::plan::Plan;
use crate::policy::Policy;
use crate::request::Request;

/// What differs between hosts.
trait Host {
    /// Whose calls to the limiter are.
    fn call_owner(&self) -> CallOwner;

    /// Time that only goes forward and that all workers of a proxy share; None where the host has none.
    fn monotonic(&self) -> Option<Ms>;

    /// How a call ended, said in the callback of that call.
    fn call_end<'b>(&self, headers: usize, body_size: usize, body: &'b mut Bytes) -> HttpEnd<'b>;

    /// Whether the service behind has sent a header of this name.
    fn has_response_header(&self, name: &str) -> bool;

    /// Puts a header into the response instead of any of the same name.
    fn replace_response_header(&self, name: &str, value: &str);
}

/// The host that this module runs in.
const HOST: &dyn Host = &envoy::Envoy;

proxy_wasm::main! {{
    proxy_wasm::set_log_level(LogLevel::Info);
    proxy_wasm::set_root_context(|id| Box::new(Root { id, plan: None }));
}}

/// One configuration of the filter.
struct Root {
    id: u32,
    plan: Option<Rc<Plan>>,
}

impl RootContext for Root {
    fn get_type(&self) -> Option<ContextType> {
        Some(ContextType::HttpContext)
    }

    fn create_http_context(&self, id: u32) -> Option<Box<dyn HttpContext>> {
        let stream = Stream { id, state: Rc::new(RefCell::new(State::New)) };
        Some(Box::new(Filter { plan: self.plan.clone(), stream }))
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
                let period = Flow::<Stream>::tick_period(&policy);
                let plan = vm::install(self.id, policy);
                let clock = if HOST.monotonic().is_some() { "the host's steady clock" } else { "the wall's clock" };
                let version = env!("CARGO_PKG_VERSION");
                log::info!("weir {version}: policy {} of this worker is in force, timed by {clock}", plan.id);
                if let Some(before) = self.plan.replace(plan) {
                    before.retire();
                }
                self.set_tick_period(std::time::Duration::from_millis(period.0));
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
        let end = HOST.call_end(headers, body_size, &mut body);
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
    state: Rc<RefCell<State>>,
}

#[derive(Debug)]
enum State {
    /// Nothing has been decided.
    New,
    /// It is paused.
    Waiting(Ticket),
    /// It goes on, and its response carries these headers.
    Passed(Vec<Header>),
    /// The filter has answered it, or it is over.
    Over,
}

struct Filter {
    plan: Option<Rc<Plan>>,
    stream: Stream,
}

impl HttpContext for Filter {
    fn on_http_request_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        let Some(plan) = &self.plan else {
            self.stream.refuse(Refusal::without_policy());
            return Action::Pause;
        };
        #[cfg(feature = "trap")]
        if HostRequest.header("x-weir-trap").is_some() {
            std::process::abort();
        }
        let answer = match decide(&plan.policy, &HostRequest) {
            Decision::Answer(answer) => Some(answer),
            Decision::Ask(asks) => vm::arrive(plan, asks, &self.stream),
        };
        match answer {
            Some(Answer::Pass(headers)) => {
                self.stream.state.replace(State::Passed(headers));
                Action::Continue
            }
            Some(Answer::Refuse(refusal)) => {
                self.stream.refuse(refusal);
                Action::Pause
            }
            None => Action::Pause,
        }
    }

    fn on_http_response_headers(&mut self, _headers: usize, _end_of_stream: bool) -> Action {
        if let (State::Passed(headers), Some(plan)) = (&*self.stream.state.borrow(), &self.plan) {
            for (name, value) in answer::added(&plan.policy, headers, &|name| HOST.has_response_header(name)) {
                HOST.replace_response_header(name, value);
            }
        }
        Action::Continue
    }

    /// The request is over, or its client has left.
    fn on_log(&mut self) {
        if let State::Waiting(ticket) = self.stream.state.replace(State::Over) {
            vm::left(ticket);
        }
    }
}

impl Context for Filter {}

impl Stream {
    /// Performs an answer to the request while it is paused. The effective context must be this stream.
    fn finish(&self, answer: Answer) {
        match answer {
            Answer::Pass(headers) => {
                self.state.replace(State::Passed(headers));
                // Fails only for a kind of stream that is not HTTP.
                let _ = hostcalls::resume_http_request();
            }
            Answer::Refuse(refusal) => self.refuse(refusal),
        }
    }

    /// Answers the request, whose headers can be read as long as it is paused.
    fn refuse(&self, mut refusal: Refusal) {
        self.state.replace(State::Over);
        refusal.fit(&HostRequest);
        let headers = refusal.headers.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let _ = hostcalls::send_http_response(refusal.status.into(), headers, Some(refusal.body.as_bytes()));
    }
}

/// The request of the current context. Only byte getters: a String getter panics on bytes that are not UTF-8.
struct HostRequest;

impl Request for HostRequest {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        hostcalls::get_map_value_bytes(MapType::HttpRequestHeaders, name).ok().flatten()
    }

    fn is_doubled(&self, name: &str) -> bool {
        let headers = hostcalls::get_map_bytes(MapType::HttpRequestHeaders).unwrap_or_default();
        headers.iter().filter(|(other, _)| other == name).nth(1).is_some()
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        hostcalls::get_property(path.to_vec()).ok().flatten()
    }
}
