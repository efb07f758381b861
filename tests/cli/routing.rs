//! What check says of routing that changes nothing, beside the core: with many policies, and without the words it names.

use weir::limiter::redis::key;
use weir::policy::{Policy, Tree};
use weir::request::Request;
use weir::rules::{Ruling, judge};

use crate::{folder, get, items, text, weir};

/// A request of a user, with a plan, from an address.
struct Sent {
    user: &'static str,
    plan: &'static str,
    address: &'static str,
}

impl Request for Sent {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        let value = match name {
            "x-user-id" => self.user,
            "x-plan" => self.plan,
            _ => "",
        };
        (!value.is_empty()).then(|| value.as_bytes().to_vec())
    }
    fn is_doubled(&self, _name: &str) -> bool {
        false
    }
    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        (path == ["source", "address"]).then(|| format!("{}:1", self.address).into_bytes())
    }
}

/// The buckets of all requests that a policy may tell apart, each with its limiter.
fn buckets(policy: &Tree) -> Vec<(String, String)> {
    let policy = Policy::from_tree(policy, &|_| None).unwrap_or_else(|problems| panic!("{problems:?} in {policy:?}"));
    let mut all = Vec::new();
    for user in ["", "a", "b", "c", "d"] {
        for plan in ["", "free", "gold", "internal"] {
            for address in ["192.0.2.1", "10.9.9.9", "10.1.9.9", "10.1.2.3"] {
                let Ruling::Ask(asks) = judge(&policy, &Sent { user, plan, address }).ruling else { continue };
                let names = asks
                    .into_iter()
                    .map(|ask| (key(&policy, &ask.bucket), policy.limiters.get(ask.bucket.limiter).name.clone()));
                all.extend(names);
            }
        }
    }
    all
}

/// Numbers that look random, the same in each run.
struct Dice(u64);

impl Dice {
    fn one_of<'c>(&mut self, choices: &[&'c str]) -> &'c str {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        choices[usize::try_from(self.0 >> 33).expect("32 bits") % choices.len()]
    }

    /// An object with some of these keys.
    fn some(&mut self, keys: &[&str], values: &[&str]) -> String {
        let kept: Vec<&&str> = keys.iter().filter(|_| self.one_of(&["take", "leave"]) == "take").collect();
        let pairs: Vec<String> = kept.iter().map(|key| format!("{key}: {}", self.one_of(values))).collect();
        format!("{{{}}}", pairs.join(", "))
    }

    fn policy(&mut self) -> String {
        let (tiers, limiters) = (["free", "gold", "internal"], ["main", "big", "own"]);
        let limits: Vec<String> = tiers
            .iter()
            .map(|tier| format!("{tier}: {}", self.one_of(&["60/m", "600/m", "{default: unlimited}", "deny"])))
            .collect();
        let networks = ["client_ip.10.0.0.0/8", "client_ip.10.1.0.0/16", "client_ip.10.1.2.3"];
        let named = [&["user.a", "user.b", "user.c"][..], &networks[..]].concat();
        format!(
            "version: 1
limiters: {{main: {{transport: webdis, cluster: a}}, big: {{transport: webdis, cluster: b}}, own: {{transport: webdis, cluster: c}}}}
rules:
  - name: r
    limiter: {{default: {}, tiers: {}, tenants: {}}}
    key: [{{header: {{name: x-user-id, as: user, trusted: true}}}}, {{client_ip: host}}]
    tier: {{{} tenants: {}, default: {}}}
    limits: {{{}}}
    overrides: {}
    mode: exact
    on_error: allow
",
            self.one_of(&limiters),
            self.some(&tiers, &limiters),
            self.some(&named, &limiters),
            self.one_of(&["", "sources: [{header: {name: x-plan, trusted: true}}],"]),
            self.some(&named, &tiers),
            self.one_of(&tiers),
            limits.join(", "),
            self.some(&["user.a", "client_ip.10.1.0.0/16"], &["7/s", "deny", "unlimited"]),
        )
    }
}

/// The object under `limiter` of the only rule.
fn routing(policy: &mut Tree) -> &mut Vec<(String, Tree)> {
    let rule = match field(policy, "rules") {
        Tree::List(rules) => rules.first_mut().expect("a rule"),
        other => panic!("{other:?}"),
    };
    pairs(field(rule, "limiter"))
}

fn pairs(tree: &mut Tree) -> &mut Vec<(String, Tree)> {
    let Tree::Map(pairs) = tree else { panic!("no object: {tree:?}") };
    pairs
}

fn field<'t>(tree: &'t mut Tree, word: &str) -> &'t mut Tree {
    &mut pairs(tree).iter_mut().find(|(key, _)| key == word).expect("a field").1
}

/// A policy without an entry of `tiers` or `tenants` of its routing.
fn without(policy: &Tree, word: &str, key: &str) -> Tree {
    let mut policy = policy.clone();
    let of_word = routing(&mut policy).iter_mut().find(|(known, _)| known == word).expect("the word");
    pairs(&mut of_word.1).retain(|(known, _)| known != key);
    policy
}

#[test]
fn check_names_the_words_of_a_routing_without_which_no_bucket_is_elsewhere() {
    let mut dice = Dice(7);
    let (mut tiers, mut tenants, mut defaults) = (0, 0, 0);
    for _ in 0..150 {
        let written = dice.policy();
        let policy: Tree = serde_saphyr::from_str(&written).expect("YAML");
        let before = buckets(&policy);
        let reports = weir(&folder(), &["check", "-", "--format", "json"], &[], written.as_bytes()).stdout;
        let reports = Tree::from_json(&reports).unwrap_or_else(|_| panic!("{}", text(&reports)));
        let is_warned = |path: &str| {
            let is = |report: &Tree, word, wanted: &str| *get(report, word) == Tree::Text(wanted.to_owned());
            items(&reports).iter().any(|report| is(report, "severity", "warning") && is(report, "path", path))
        };
        let words = routing(&mut policy.clone()).clone();
        for (word, entries) in &words {
            let Tree::Map(entries) = entries else { continue };
            for (key, _) in entries {
                let is_same = buckets(&without(&policy, word, key)) == before;
                let is_warned = is_warned(&format!("rules[0].limiter.{word}.{key}"));
                assert!(is_same || !is_warned, "{word}.{key} changes something in\n{written}");
                if word == "tiers" {
                    tiers += usize::from(is_warned);
                } else {
                    tenants += usize::from(is_warned);
                    // Of one tenant all that matters is known; who else is in its network is not.
                    assert!(is_warned || !is_same || !key.starts_with("user."), "{key} changes nothing in\n{written}");
                }
            }
        }
        if is_warned("rules[0].limiter.default") {
            defaults += 1;
            for other in ["main", "big", "own"] {
                let mut policy = policy.clone();
                let words = routing(&mut policy);
                words.iter_mut().find(|(word, _)| word == "default").expect("a default").1 =
                    Tree::Text(other.to_owned());
                assert_eq!(buckets(&policy), before, "default is used in\n{written}");
            }
        }
    }
    assert!(tiers >= 40 && tenants >= 40 && defaults >= 3, "{tiers}, {tenants}, {defaults}");
}
