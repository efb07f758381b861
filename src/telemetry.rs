//! What became of a request, for those who watch: counters, access logs, the debug header, the busiest tenants.
//!
//! A record says it in the words of the policy. Keys, and so tenants, stand in it only where the policy has them
//! observed.

use std::rc::Rc;

use crate::bucket::BucketId;
use crate::limiter::{Failure, transport_of};
use crate::policy::{ClassId, Policy};
use crate::request::Refused;

/// What stands for a rule, a class or a tier where there is none. No name in a policy can look so.
const NONE: &str = "~none";

/// What stands for the tier of a tenant that has limits of its own.
const OVERRIDE: &str = "~override";

/// Where in a policy a decision belongs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// An index into its rules; None where no rule was asked.
    pub rule: Option<usize>,
    /// None where the class is not known, or was not asked for.
    pub class: Option<ClassId>,
    /// An index into the tiers of the rule; None where none was found out.
    pub tier: Option<usize>,
}

/// What a rule, or the policy before any rule, did with a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effect {
    /// It passes, and is counted.
    Allowed,
    /// It is refused: a bucket has too little.
    Limited,
    /// It passes, and would be refused were the rule no shadow.
    Shadow,
    /// It passes uncounted, as the policy says of this class and tier.
    Unlimited,
    /// It passes uncounted, as the policy says of its class.
    Exempt,
    /// It passes uncounted: it has been sent, and charged, before.
    Repeated,
    /// It is refused by the word `deny`, or because it names no tenant.
    Forbidden,
    /// It is refused, for it names its tenant twice.
    Doubled,
    /// It is refused, for its path is none.
    Malformed,
    /// It is refused, for nobody could count it.
    Failed,
}

/// Where the tokens of a request came from, or the word that there are none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenSource {
    /// This proxy has been lent them.
    Lease,
    /// The request waited, and the limiter has decided it.
    Limiter,
    /// They are spent first and settled later.
    Async,
    /// The bucket of this proxy alone.
    Local,
    /// What the limiter said before: it is dry.
    Known,
}

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mark {
    /// Where it belongs.
    pub scope: Scope,
    /// What it is.
    pub effect: Effect,
    /// Who made it, where tokens were asked for.
    pub source: Option<TokenSource>,
    /// Why `on_error` made it, if it did.
    pub degraded: Option<Failure>,
    /// The bucket, where the policy has it observed.
    pub bucket: Option<Rc<BucketId>>,
}

/// All decisions about one request; the first is the one that its answer tells of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// One for each rule that had a say in it.
    pub marks: Vec<Mark>,
    /// Tokens that the bucket which the answer tells of has left.
    pub remaining: Option<u64>,
}

impl Effect {
    /// Its name in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Effect::Allowed => "allowed",
            Effect::Limited => "limited",
            Effect::Shadow => "shadow",
            Effect::Unlimited => "unlimited",
            Effect::Exempt => "exempt",
            Effect::Repeated => "repeated",
            Effect::Forbidden => "forbidden",
            Effect::Doubled => "doubled",
            Effect::Malformed => "malformed",
            Effect::Failed => "failed",
        }
    }
}

impl From<Refused> for Effect {
    fn from(refused: Refused) -> Effect {
        match refused {
            Refused::Malformed => Effect::Malformed,
            Refused::Doubled => Effect::Doubled,
            Refused::Forbidden => Effect::Forbidden,
        }
    }
}

impl TokenSource {
    /// Its name in logs.
    pub fn name(self) -> &'static str {
        match self {
            TokenSource::Lease => "lease",
            TokenSource::Limiter => "limiter",
            TokenSource::Async => "async",
            TokenSource::Local => "local",
            TokenSource::Known => "known",
        }
    }
}

impl Scope {
    /// The rule, the class and the tier as the policy calls them.
    pub fn names(self, policy: &Policy) -> [&str; 3] {
        let rule = self.rule.and_then(|rule| policy.rules.get(rule));
        let class = self.class.and_then(|class| policy.classes.names.get(class.0));
        let tier = rule.and_then(|rule| rule.tiers.get(self.tier?));
        let tier = tier.map_or(NONE, |tier| if tier.name.is_empty() { OVERRIDE } else { &tier.name });
        [rule.map_or(NONE, |rule| &rule.name), class.map_or(NONE, |class| class), tier]
    }
}

impl Mark {
    /// A decision that needed no tokens.
    pub fn new(scope: Scope, effect: Effect) -> Mark {
        Mark { scope, effect, source: None, degraded: None, bucket: None }
    }
}

impl Record {
    /// `rule=per-key class=export tier=gold outcome=allowed source=lease remaining=41`: the decision that the answer
    /// tells of, in logfmt. Fields that do not apply are left out.
    pub fn line(&self, policy: &Policy) -> String {
        let mut line = String::new();
        if let Some(mark) = self.marks.first() {
            mark.write(&mut line, policy);
        }
        if let Some(remaining) = self.remaining {
            field(&mut line, "remaining", &remaining.to_string());
        }
        line
    }

    /// The same of all decisions, with the keys of their buckets.
    pub fn lines(&self, policy: &Policy) -> String {
        let mut lines = self.line(policy);
        for (number, mark) in self.marks.iter().enumerate() {
            if number > 0 {
                lines.push_str("; ");
                mark.write(&mut lines, policy);
            }
            if let Some(bucket) = &mark.bucket {
                let transport = transport_of(policy.limiters.get(bucket.limiter));
                field(&mut lines, "key", &transport.name_of(policy, bucket));
            }
        }
        lines
    }
}

impl Mark {
    fn write(&self, line: &mut String, policy: &Policy) {
        let [rule, class, tier] = self.scope.names(policy);
        for (name, value) in [("rule", rule), ("class", class), ("tier", tier)] {
            if value != NONE {
                field(line, name, value);
            }
        }
        field(line, "outcome", self.effect.name());
        if let Some(source) = self.source {
            field(line, "source", source.name());
        }
        if let Some(failure) = self.degraded {
            field(line, "degraded", failure.name());
        }
    }
}

/// Appends `name=value`, after a space where something stands before.
fn field(line: &mut String, name: &str, value: &str) {
    if !line.is_empty() && !line.ends_with(' ') {
        line.push(' ');
    }
    line.extend([name, "=", value]);
}
