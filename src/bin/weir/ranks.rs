//! What proxies tell of tenants, merged, and how it is shown.
//!
//! A proxy's list is that of [`weir::local::top`], and lists are merged as sketches are there; but each tells of a time of
//! its own, so what is added up are rates. It must not ask anybody.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use anstyle::AnsiColor;
use serde_json::Value;
use weir::local::top::COUNTERS;
use weir::policy::Tree;

use crate::report::{BOLD, DIM, colour, json, number, object, styled, text, visible};

/// What one proxy tells: by rule who was refused, and who came.
pub struct Told(Vec<(String, [List; 2])>);

/// What was counted in a time.
struct List {
    milliseconds: u64,
    /// By tenant: requests, and how many of them may have been others'.
    tenants: BTreeMap<String, (u64, u64)>,
}

/// What some proxies tell together.
pub struct View {
    pub answered: usize,
    /// Which proxies have not, and why.
    pub failures: Vec<(String, String)>,
    pub rules: Vec<Rule>,
}

pub struct Rule {
    pub name: String,
    refused: Vec<Rank>,
    busiest: Vec<Rank>,
}

/// One tenant.
struct Rank {
    tenant: String,
    /// Requests, and how many of them may have been others'.
    count: u64,
    error: u64,
    /// The same, per second.
    rate: f64,
    rate_error: f64,
}

/// Reads what a proxy answers at its `top_path`; None where it is anything else.
pub fn read(body: &[u8]) -> Option<Told> {
    let told: Value = serde_json::from_slice(body).ok()?;
    let rule = |rule: &Value| {
        let list = |of: &str| list(rule.get(of)?);
        Some((rule.get("rule")?.as_str()?.to_owned(), [list("refused")?, list("busiest")?]))
    };
    Some(Told(told.get("rules")?.as_array()?.iter().map(rule).collect::<Option<_>>()?))
}

fn list(list: &Value) -> Option<List> {
    let tenant = |of: &Value| {
        let number = |name| of.get(name)?.as_u64();
        Some((of.get("tenant")?.as_str()?.to_owned(), (number("count")?, number("error")?)))
    };
    Some(List {
        milliseconds: list.get("milliseconds")?.as_u64()?,
        tenants: list.get("tenants")?.as_array()?.iter().map(tenant).collect::<Option<_>>()?,
    })
}

impl List {
    /// So often may a tenant have come, and so many of that may have been others.
    fn of(&self, tenant: &str) -> (u64, u64) {
        let floor = || match self.tenants.len() < COUNTERS {
            true => 0,
            false => self.tenants.values().map(|(count, _)| *count).min().unwrap_or_default(),
        };
        self.tenants.get(tenant).copied().unwrap_or_else(|| (floor(), floor()))
    }

    fn per_second(&self, count: u64) -> f64 {
        count as f64 * 1000.0 / self.milliseconds.max(1) as f64
    }
}

/// All tenants of some lists, the one that came most first.
fn merge(lists: &[&List]) -> Vec<Rank> {
    let tenants: BTreeSet<&String> = lists.iter().flat_map(|list| list.tenants.keys()).collect();
    let rank = |tenant: &String| {
        let nothing = Rank { tenant: tenant.clone(), count: 0, error: 0, rate: 0.0, rate_error: 0.0 };
        lists.iter().fold(nothing, |rank, list| {
            let (count, error) = list.of(tenant);
            Rank {
                count: rank.count.saturating_add(count),
                error: rank.error.saturating_add(error),
                rate: rank.rate + list.per_second(count),
                rate_error: rank.rate_error + list.per_second(error),
                ..rank
            }
        })
    };
    let mut ranks: Vec<Rank> = tenants.into_iter().map(rank).collect();
    // Those who come equally often stay in the order of their names.
    ranks.sort_by(|a, b| b.rate.total_cmp(&a.rate));
    ranks
}

impl View {
    /// What each proxy has told, or why it has not. Rules are in the order in which they are met.
    pub fn of(told: Vec<(String, Result<Told, String>)>) -> View {
        let (mut answers, mut failures) = (Vec::new(), Vec::new());
        for (url, told) in told {
            match told {
                Ok(told) => answers.push(told),
                Err(why) => failures.push((url, why)),
            }
        }
        let mut names: Vec<&String> = Vec::new();
        for (name, _) in answers.iter().flat_map(|told| &told.0) {
            if !names.contains(&name) {
                names.push(name);
            }
        }
        let rule = |name: &String| {
            let told = answers.iter().flat_map(|told| &told.0).filter(|(other, _)| other == name);
            let (refused, busiest): (Vec<_>, Vec<_>) = told.map(|(_, [refused, busiest])| (refused, busiest)).unzip();
            Rule { name: name.clone(), refused: merge(&refused), busiest: merge(&busiest) }
        };
        let rules = names.into_iter().map(rule).collect();
        View { answered: answers.len(), failures, rules }
    }

    /// One rule of it.
    pub fn only(mut self, rule: &str) -> View {
        self.rules.retain(|known| known.name == rule);
        self
    }

    /// At most so many tenants of each list, for people.
    pub fn text(&self, lines: usize) -> String {
        let asked = self.answered.saturating_add(self.failures.len());
        let proxies = if asked == 1 { "proxy" } else { "proxies" };
        let mut text = format!("{} of {asked} {proxies}, requests per second in the last minutes\n", self.answered);
        for (url, why) in &self.failures {
            let url = styled(colour(AnsiColor::Red), &visible(url));
            let _ = writeln!(text, "  {url}: {}", visible(why));
        }
        for rule in &self.rules {
            let _ = writeln!(text, "\n{}", styled(BOLD, &format!("rule {}", visible(&rule.name))));
            for (name, ranks) in [("refused", &rule.refused), ("busiest", &rule.busiest)] {
                let none = if ranks.is_empty() { " nobody" } else { "" };
                let _ = writeln!(text, "  {}{none}", styled(DIM, name));
                ranks.iter().take(lines).for_each(|rank| rank.line(&mut text));
                let more = ranks.len().saturating_sub(lines);
                if more > 0 {
                    let _ = writeln!(text, "{:>10}  {more} more", "...");
                }
            }
        }
        text
    }

    /// The same for programs.
    pub fn json(&self, lines: usize) -> String {
        let failure = |(url, why): &(String, String)| object([("url", text(url)), ("error", text(why))]);
        let rule = |rule: &Rule| {
            let list = |ranks: &[Rank]| Tree::List(ranks.iter().take(lines).map(Rank::json).collect());
            object([("rule", text(&rule.name)), ("refused", list(&rule.refused)), ("busiest", list(&rule.busiest))])
        };
        json(&object([
            ("answered", number(self.answered)),
            ("failures", Tree::List(self.failures.iter().map(failure).collect())),
            ("rules", Tree::List(self.rules.iter().map(rule).collect())),
        ]))
    }
}

impl Rank {
    fn line(&self, text: &mut String) {
        let (rate, sure) = (format!("{:.1}", self.rate), format!("{:.1}", self.rate - self.rate_error));
        let sure = if sure == rate { String::new() } else { styled(DIM, &format!(" (at least {sure})")) };
        let _ = writeln!(text, "{rate:>10}  {}{sure}", visible(&self.tenant));
    }

    fn json(&self) -> Tree {
        let thousandths = |rate: f64| Tree::Float((rate * 1000.0).round() / 1000.0);
        object([
            ("tenant", text(&self.tenant)),
            ("count", number(self.count)),
            ("error", number(self.error)),
            ("per_second", thousandths(self.rate)),
            ("error_per_second", thousandths(self.rate_error)),
        ])
    }
}
