//! What `weir explain` tells, for people and for programs.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use weir::explain::buckets::is_moment;
use weir::policy::{Limit, Policy, Tree};
use weir::response::Answer;

use crate::explain::limit;
use crate::given::Given;
use crate::report::{BOLD, DIM, colour, json, number, object, styled, text, visible};

/// All of it.
pub struct Explained {
    pub request: String,
    pub policy: String,
    pub fingerprint: u32,
    pub path: String,
    pub class: Seen,
    pub rules: Vec<RuleSeen>,
    pub answers: Vec<Answered>,
    pub notes: Vec<String>,
}

/// The class.
pub struct Seen {
    pub name: String,
    pub because: String,
    /// None where no rule charges it.
    pub cost: Option<u64>,
    pub is_exempt: bool,
}

/// What one rule sees.
#[derive(Default)]
pub struct RuleSeen {
    pub name: String,
    pub line: usize,
    pub source: String,
    pub tenant: Option<String>,
    /// Its name, and why it is that one.
    pub tier: Option<(String, String)>,
    pub entry: Option<String>,
    pub buckets: Vec<Bucket>,
    pub mode: String,
    pub on_error: Option<String>,
    pub idempotency: Option<String>,
    pub is_shadow: bool,
    /// Clients are not told how its buckets stand.
    pub is_untold: bool,
    /// What the rule says where it asks for no tokens.
    pub result: String,
}

pub struct Bucket {
    pub limit: Limit,
    /// The share of one proxy, where it may decide.
    pub own: Option<Limit>,
    pub key: String,
    /// It is nowhere but in the proxy.
    pub is_local: bool,
}

/// What the client gets.
pub struct Answered {
    when: String,
    /// None: the service's.
    status: Option<u16>,
    headers: Vec<(String, String)>,
    body: Option<String>,
}

impl Answered {
    pub fn new(when: String, answer: &Answer, given: &Given, policy: &Policy) -> Answered {
        let moment = |name: &str, value: &str| match is_moment(policy, name) {
            true => format!("<now + {value} s>"),
            false => value.to_owned(),
        };
        let told = |headers: &[(&'static str, String)]| {
            headers.iter().map(|(name, value)| ((*name).to_owned(), moment(name, value))).collect()
        };
        match answer {
            Answer::Pass(headers) => Answered { when, status: None, headers: told(headers), body: None },
            Answer::Refuse(refusal) => {
                let mut refusal = refusal.clone();
                refusal.fit(given);
                let headers = told(&refusal.headers);
                Answered { when, status: Some(refusal.status), headers, body: Some(refusal.body) }
            }
        }
    }

    fn lines(&self, rows: &mut Rows) {
        rows.title(&match self.when.as_str() {
            "always" => "answer".to_owned(),
            when => format!("answer if {when}"),
        });
        match self.status {
            None => rows.row("status", &styled(colour(AnsiColor::Green), "the service's")),
            Some(status) => rows.row("status", &styled(colour(AnsiColor::Red), &status.to_string())),
        }
        for (name, value) in &self.headers {
            rows.row("header", &format!("{}: {}", visible(name), visible(value)));
        }
        if let Some(body) = self.body.as_ref().filter(|body| !body.is_empty()) {
            rows.row("body", &visible(body));
        }
    }

    fn json(&self) -> Tree {
        let headers = self.headers.iter().map(|(name, value)| (name.clone(), text(value)));
        object([
            ("if", text(&self.when)),
            ("status", self.status.map_or(Tree::Null, number)),
            ("headers", Tree::Map(headers.collect())),
            ("body", maybe(self.body.as_deref())),
        ])
    }
}

/// Rows of a name and a value, the values below each other.
#[derive(Default)]
struct Rows(String);

impl Rows {
    fn title(&mut self, title: &str) {
        let _ = writeln!(self.0, "\n{}", styled(BOLD, &visible(title)));
    }

    /// `value` is safe to print.
    fn row(&mut self, name: &str, value: &str) {
        let _ = writeln!(self.0, "  {}{value}", styled(DIM, &format!("{name:<13}")));
    }
}

impl Explained {
    pub fn text(&self) -> String {
        let mut rows = Rows::default();
        let _ = writeln!(rows.0, "{}", styled(BOLD, &visible(&self.request)));
        rows.row("policy", &visible(&self.policy));
        rows.row("fingerprint", &self.fingerprint.to_string());
        rows.row("path", &visible(&self.path));
        rows.row("class", &visible(&self.class.name));
        rows.row("  because", &visible(&self.class.because));
        match (self.class.cost, self.class.is_exempt) {
            (Some(cost), _) => rows.row("cost", &cost.to_string()),
            (None, true) => rows.row("cost", "none: it is exempt, and no rule looks at it"),
            (None, false) => {}
        }
        self.rules.iter().for_each(|rule| rule.lines(&mut rows));
        self.answers.iter().for_each(|answer| answer.lines(&mut rows));
        let gap = if self.notes.is_empty() { "" } else { "\n" };
        rows.0.push_str(gap);
        for note in &self.notes {
            let _ = writeln!(rows.0, "{} {}", styled(colour(AnsiColor::Cyan), "note:"), visible(note));
        }
        rows.0
    }

    pub fn json(&self) -> String {
        json(&object([
            ("request", text(&self.request)),
            ("policy", text(&self.policy)),
            ("fingerprint", number(self.fingerprint)),
            ("path", text(&self.path)),
            (
                "class",
                object([
                    ("name", text(&self.class.name)),
                    ("because", text(&self.class.because)),
                    ("cost", self.class.cost.map_or(Tree::Null, number)),
                    ("exempt", Tree::Bool(self.class.is_exempt)),
                ]),
            ),
            ("rules", Tree::List(self.rules.iter().map(RuleSeen::json).collect())),
            ("answers", Tree::List(self.answers.iter().map(Answered::json).collect())),
            ("notes", Tree::List(self.notes.iter().map(text).collect())),
        ]))
    }
}

impl RuleSeen {
    fn lines(&self, rows: &mut Rows) {
        let shadow = if self.is_shadow { ", a shadow: it counts, and refuses nothing" } else { "" };
        rows.title(&format!("rule {} (line {}){shadow}", self.name, self.line));
        rows.row("source", &visible(&self.source));
        if let Some(tenant) = &self.tenant {
            rows.row("tenant", &visible(tenant));
        }
        if let Some((tier, why)) = &self.tier {
            rows.row("tier", &visible(&format!("{tier}: {why}")));
        }
        if let Some(entry) = &self.entry {
            rows.row("entry", &visible(entry));
        }
        if !self.result.is_empty() {
            rows.row("result", &visible(&self.result));
        }
        for bucket in &self.buckets {
            rows.row("limit", &limit(bucket.limit));
            if let Some(own) = bucket.own {
                rows.row("  of a proxy", &limit(own));
            }
            rows.row(if bucket.is_local { "local key" } else { "redis key" }, &visible(&bucket.key));
        }
        if !self.buckets.is_empty() {
            rows.row("mode", &visible(&self.mode));
        }
        if let Some(on_error) = &self.on_error {
            rows.row("on_error", &visible(on_error));
        }
        if let Some(idempotency) = &self.idempotency {
            rows.row("idempotency", &visible(idempotency));
        }
        if self.is_untold {
            rows.row("headers", "false: clients are not told how it stands");
        }
    }

    fn json(&self) -> Tree {
        let numbers = |limit: Limit| {
            object([
                ("requests", number(limit.requests())),
                ("per_ms", number(limit.period().0)),
                ("burst", number(limit.burst())),
            ])
        };
        let buckets = self.buckets.iter().map(|bucket| {
            object([
                ("key", text(&bucket.key)),
                ("in_redis", Tree::Bool(!bucket.is_local)),
                ("limit", numbers(bucket.limit)),
                ("of_a_proxy", bucket.own.map_or(Tree::Null, numbers)),
            ])
        });
        let (tier, why) = self.tier.as_ref().map(|(tier, why)| (tier.as_str(), why.as_str())).unzip();
        object([
            ("rule", text(&self.name)),
            ("line", number(self.line)),
            ("shadow", Tree::Bool(self.is_shadow)),
            ("source", text(&self.source)),
            ("tenant", maybe(self.tenant.as_deref())),
            ("tier", maybe(tier)),
            ("tier_because", maybe(why)),
            ("entry", maybe(self.entry.as_deref())),
            ("result", maybe(Some(self.result.as_str()).filter(|result| !result.is_empty()))),
            ("buckets", Tree::List(buckets.collect())),
            ("mode", text(&self.mode)),
            ("on_error", maybe(self.on_error.as_deref())),
            ("idempotency", maybe(self.idempotency.as_deref())),
            ("headers", Tree::Bool(!self.is_untold)),
        ])
    }
}

fn maybe(value: Option<&str>) -> Tree {
    value.map_or(Tree::Null, text)
}
