//! What `weir explain` tells, for people and for programs.

use std::fmt::Write as _;

use anstyle::AnsiColor;
use weir::explain::words::{algorithm, limit, limit_of, mode};
use weir::explain::{AnswerSeen, Because, BucketSeen, Charge, Explanation, LimiterSeen, RuleResult, RuleSeen, When};
use weir::policy::{Limit, Path, Segment, Tree};

use crate::document::Node;
use crate::report::{BOLD, DIM, colour, json, number, object, styled, text, visible};

/// An explanation, and where its parts stand.
pub struct Told<'a> {
    pub request: String,
    pub policy: String,
    pub explanation: Explanation,
    pub notes: Vec<String>,
    /// The policy as it stands in its file.
    pub node: &'a Node,
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

impl Told<'_> {
    /// The line of an item of a list of the policy.
    fn line(&self, list: &'static str, index: usize) -> usize {
        self.node.place(&Path::default().word(list).then(Segment::Index(index))).line
    }

    fn because(&self) -> String {
        match &self.explanation.class.because {
            Because::First { index, wants } => {
                let line = self.line("classes", *index);
                format!("classes[{index}] (line {line}) is the first that matches: {wants}")
            }
            Because::NoClasses => "the policy has no classes".to_owned(),
            Because::NoMatch => "no entry of classes matches".to_owned(),
            Because::Malformed => "a class wants the path, which is malformed".to_owned(),
        }
    }

    fn class(&self) -> &str {
        self.explanation.class.name.as_deref().unwrap_or("none")
    }

    pub fn text(&self) -> String {
        let told = &self.explanation;
        let mut rows = Rows::default();
        let _ = writeln!(rows.0, "{}", styled(BOLD, &visible(&self.request)));
        rows.row("policy", &visible(&self.policy));
        rows.row("fingerprint", &told.fingerprint.to_string());
        rows.row("path", &visible(&told.path.to_string()));
        rows.row("class", &visible(self.class()));
        rows.row("  because", &visible(&self.because()));
        if told.class.charge != Charge::Refused {
            rows.row("cost", &told.class.charge.to_string());
        }
        told.rules.iter().for_each(|rule| rule_lines(rule, self.line("rules", rule.index), &mut rows));
        told.answers.iter().for_each(|answer| answer_lines(answer, &mut rows));
        let gap = if self.notes.is_empty() { "" } else { "\n" };
        rows.0.push_str(gap);
        for note in &self.notes {
            let _ = writeln!(rows.0, "{} {}", styled(colour(AnsiColor::Cyan), "note:"), visible(note));
        }
        rows.0
    }

    pub fn json(&self) -> String {
        let told = &self.explanation;
        let (cost, is_exempt) = match told.class.charge {
            Charge::Cost(cost) => (number(cost), false),
            Charge::Exempt => (Tree::Null, true),
            Charge::Refused => (Tree::Null, false),
        };
        let rules = told.rules.iter().map(|rule| rule_json(rule, self.line("rules", rule.index)));
        json(&object([
            ("request", text(&self.request)),
            ("policy", text(&self.policy)),
            ("fingerprint", number(told.fingerprint)),
            ("path", text(told.path.to_string())),
            (
                "class",
                object([
                    ("name", text(self.class())),
                    ("because", text(self.because())),
                    ("cost", cost),
                    ("exempt", Tree::Bool(is_exempt)),
                ]),
            ),
            ("rules", Tree::List(rules.collect())),
            ("answers", Tree::List(told.answers.iter().map(answer_json).collect())),
            ("notes", Tree::List(self.notes.iter().map(text).collect())),
        ]))
    }
}

fn rule_lines(rule: &RuleSeen, line: usize, rows: &mut Rows) {
    let shadow = if rule.is_shadow { ", a shadow: it counts, and refuses nothing" } else { "" };
    rows.title(&format!("rule {} (line {line}){shadow}", rule.name));
    rows.row("source", &visible(&rule.source.to_string()));
    if let Some(tenant) = &rule.tenant {
        rows.row("tenant", &visible(tenant));
    }
    if let Some(tier) = &rule.tier {
        rows.row("tier", &visible(&format!("{}: {}", tier.title(), tier.because)));
    }
    if let Some(entry) = &rule.entry {
        rows.row("entry", &visible(entry));
    }
    if let Some(said) = rule.result.said() {
        rows.row("result", said);
    }
    if let RuleResult::Takes { buckets, on_failure, repeat } = &rule.result {
        buckets.iter().for_each(|bucket| bucket_lines(bucket, rows));
        rows.row("mode", &mode(rule.mode));
        rows.row("on_error", &on_failure.to_string());
        if let Some(repeat) = repeat {
            rows.row("idempotency", &visible(&repeat.to_string()));
        }
    }
    if !rule.tells_clients {
        rows.row("headers", "false: clients are not told how it stands");
    }
}

fn bucket_lines(bucket: &BucketSeen, rows: &mut Rows) {
    rows.row("limit", &limit_of(bucket));
    if let Some(own) = bucket.own {
        rows.row("  of a proxy", &limit(own));
    }
    rows.row(if bucket.is_local { "local key" } else { "redis key" }, &visible(&bucket.key));
    if let Some(limiter) = &bucket.limiter {
        rows.row("limiter", &visible(&limiter.to_string()));
    }
}

fn rule_json(rule: &RuleSeen, line: usize) -> Tree {
    let (buckets, on_failure, repeat) = match &rule.result {
        RuleResult::Takes { buckets, on_failure, repeat } => (buckets.as_slice(), Some(on_failure), repeat.as_ref()),
        _ => (&[][..], None, None),
    };
    object([
        ("rule", text(&rule.name)),
        ("line", number(line)),
        ("shadow", Tree::Bool(rule.is_shadow)),
        ("source", text(rule.source.to_string())),
        ("tenant", maybe(rule.tenant.as_ref())),
        ("tier", maybe(rule.tier.as_ref().map(|tier| tier.title()))),
        ("tier_because", maybe(rule.tier.as_ref().map(|tier| &tier.because))),
        ("entry", maybe(rule.entry.as_ref())),
        ("result", maybe(rule.result.said())),
        ("buckets", Tree::List(buckets.iter().map(bucket_json).collect())),
        ("mode", text(mode(rule.mode))),
        ("on_error", maybe(on_failure)),
        ("idempotency", maybe(repeat)),
        ("headers", Tree::Bool(rule.tells_clients)),
    ])
}

fn bucket_json(bucket: &BucketSeen) -> Tree {
    let numbers = |limit: Limit| {
        object([
            ("algorithm", text(algorithm(limit.algorithm()))),
            ("requests", number(limit.requests())),
            ("per_ms", number(limit.period().0)),
            ("burst", number(limit.burst())),
        ])
    };
    let (name, may_be) = match &bucket.limiter {
        Some(LimiterSeen::Known { name, .. }) => (Some(name), None),
        Some(LimiterSeen::Unknown(names)) => (None, Some(names)),
        None => (None, None),
    };
    object([
        ("key", text(&bucket.key)),
        ("in_redis", Tree::Bool(!bucket.is_local)),
        ("limiter", maybe(name)),
        ("limiter_because", maybe(bucket.limiter.as_ref().map(LimiterSeen::because))),
        ("limiter_may_be", may_be.map_or(Tree::Null, |names| Tree::List(names.iter().map(text).collect()))),
        ("limit", numbers(bucket.limit)),
        ("window_offset_ms", bucket.offset.map_or(Tree::Null, |offset| number(offset.0))),
        ("of_a_proxy", bucket.own.map_or(Tree::Null, numbers)),
    ])
}

fn answer_lines(answer: &AnswerSeen, rows: &mut Rows) {
    rows.title(&match &answer.when {
        When::Always => "answer".to_owned(),
        when => format!("answer if {when}"),
    });
    match answer.status {
        None => rows.row("status", &styled(colour(AnsiColor::Green), "the service's")),
        Some(status) => rows.row("status", &styled(colour(AnsiColor::Red), &status.to_string())),
    }
    for (name, value) in &answer.headers {
        rows.row("header", &format!("{}: {}", visible(name), visible(&value.to_string())));
    }
    if let Some(body) = answer.body.as_ref().filter(|body| !body.is_empty()) {
        rows.row("body", &visible(body));
    }
}

fn answer_json(answer: &AnswerSeen) -> Tree {
    let headers = answer.headers.iter().map(|(name, value)| ((*name).to_owned(), text(value.to_string())));
    object([
        ("if", text(answer.when.to_string())),
        ("status", answer.status.map_or(Tree::Null, number)),
        ("headers", Tree::Map(headers.collect())),
        ("body", maybe(answer.body.as_ref())),
    ])
}

fn maybe(value: Option<impl ToString>) -> Tree {
    value.map_or(Tree::Null, |value| text(value.to_string()))
}
