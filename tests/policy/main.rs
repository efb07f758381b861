//! Policies as people write them: what is wrong with the bad ones, word for word, and what the good ones mean.
//!
//! Beside `tests/policies/bad/NAME.yaml` (or `.json`) stands `NAME.txt`: the problems for people, one a line, then
//! `--- log` and the same for a log. `BLESS=1 cargo test --test policy` writes those files anew; read the difference.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use weir::clock::Ms;
use weir::path::{Paths, Pattern};
use weir::policy::{
    AddressFrom, Allowance, BreakerLimits, ClassId, Condition, Credential, Entry, Environment, Idempotency, Kind,
    Limit, Limiter, Missing, Mode, Observe, OnError, Origin, Policy, Problem, Reset, Rule, Source, Terms, Tree,
    UpstreamHeaders,
};
use weir::tenant::{HashKey, Storage, Tenant};

const POLICIES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/policies");

const ENVIRONMENT: Environment = &|name| match name {
    "WEIR_HASH_SECRET" => Some("secret".to_owned()),
    "WEIR_HASH_SECRET_NEWLINE" => Some("Basic c2VjcmV0\n".to_owned()),
    "WEIR_EMPTY" => Some(String::new()),
    _ => None,
};

/// The files of a folder with one of these extensions, in order.
fn files(folder: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let mut files: Vec<PathBuf> = fs::read_dir(format!("{POLICIES}/{folder}"))
        .expect("the folder is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)))
        .collect();
    files.sort();
    files
}

fn decode(path: &Path) -> Result<Policy, Vec<Problem>> {
    let text = fs::read_to_string(path).expect("a readable policy");
    match path.extension().is_some_and(|extension| extension == "yaml") {
        true => Policy::from_tree(&tree(&text), ENVIRONMENT),
        false => Policy::from_host(text.as_bytes(), ENVIRONMENT),
    }
}

fn tree(yaml: &str) -> Tree {
    serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("no YAML: {error}\n{yaml}"))
}

#[test]
fn the_policies_of_the_examples_are_valid() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");
    let folders = fs::read_dir(examples).expect("the folder is there").map(|entry| entry.expect("an entry").path());
    let policies: Vec<PathBuf> =
        folders.map(|folder| folder.join("policy.yaml")).filter(|path| path.is_file()).collect();
    assert_eq!(policies.len(), 7, "{policies:?}");
    for path in policies {
        let problems = decode(&path).err().unwrap_or_default();
        let told: Vec<String> = problems.iter().map(|problem| problem.for_people().to_string()).collect();
        assert!(told.is_empty(), "{}: {told:#?}", path.display());
    }
}

/// The names of the limiters that rules have buckets of these tenants and tiers in.
fn limiter_of(policy: &Policy, rule: usize, tenant: (&str, &str), tier: usize) -> String {
    let tenant = Tenant::new(tenant.0, tenant.1.as_bytes(), Storage::Plain, &HashKey::default());
    policy.limiters.get(policy.rules[rule].routing.limiter_of(&tenant, tier)).name.clone()
}

#[test]
fn a_bucket_is_in_the_limiter_of_its_tenant_else_of_its_tier_else_in_the_default_one() {
    let policy = good("limiters");
    let names: Vec<&str> = policy.limiters.iter().map(|(_, limiter)| limiter.name.as_str()).collect();
    assert_eq!(names, ["big", "main", "own"]);
    let words = |limiter: &Limiter| (limiter.timeout, limiter.breaker.failures, limiter.authorization.is_some());
    let words: Vec<_> = policy.limiters.iter().map(|(_, limiter)| words(limiter)).collect();
    assert_eq!(words, [(Ms(50), 9, false), (Ms(20), 5, false), (Ms(20), 5, true)]);
    let (free, gold, overridden) = (0, 1, 2);
    for (rule, tenant, tier, limiter) in [
        (0, ("user", "alice"), free, "main"),
        (0, ("user", "acme"), gold, "big"),
        // A tenant with limits of its own is in no tier.
        (0, ("user", "dan"), overridden, "main"),
        (0, ("user", "whale"), free, "own"),
        (0, ("user", "whale"), gold, "own"),
        (0, ("none", "anonymous"), free, "big"),
        (1, ("client_ip", "192.0.2.1"), 0, "big"),
        (1, ("client_ip", "10.9.9.9"), 0, "main"),
        (1, ("client_ip", "10.0.0.7"), 0, "own"),
        (1, ("client_ip", "2001:db8:7::"), 0, "own"),
        (2, ("constant", "all"), 0, "big"),
        (4, ("constant", "all"), 0, "big"),
    ] {
        assert_eq!(limiter_of(&policy, rule, tenant, tier), limiter, "{rule}, {tenant:?}, {tier}");
    }
    let hashed = Tenant::from_hash("key", "~0123456789abcdef0123456789abcdef").expect("a hash");
    let of_hash = policy.rules[0].routing.limiter_of(&hashed, free);
    assert_eq!(policy.limiters.get(of_hash).name, "own");
    // It needs no limits of its own for that.
    let whale = Tenant::new("user", b"whale", Storage::Plain, &HashKey::default());
    assert_eq!(policy.rules[0].tier_of_tenant(&whale), None);
}

#[test]
fn with_one_limiter_a_rule_need_not_name_it() {
    let policy = good("limiter_by_words_of_one");
    for (rule, tenant) in [(0, ("user", "whale")), (0, ("user", "alice")), (1, ("constant", "all"))] {
        assert_eq!(limiter_of(&policy, rule, tenant, 0), "main");
    }
}

fn good(name: &str) -> Policy {
    decode(Path::new(&format!("{POLICIES}/good/{name}.yaml"))).unwrap_or_else(|problems| {
        let told: Vec<String> = problems.iter().map(|problem| problem.for_people().to_string()).collect();
        panic!("{name}: {told:#?}")
    })
}

#[test]
fn every_bad_policy_is_refused_with_exactly_these_messages() {
    #[expect(clippy::disallowed_methods, reason = "a test is no core")]
    let bless = std::env::var_os("BLESS").is_some();
    let mut wrong = Vec::new();
    let mut policies = files("bad", &["yaml", "json"]);
    if cfg!(feature = "regex") {
        policies.retain(|path| !path.ends_with("path_regex_without_the_feature.yaml"));
    }
    assert!(policies.len() >= 60, "{}", policies.len());
    for path in policies {
        let Err(problems) = decode(&path) else {
            wrong.push(format!("{}: is accepted", path.display()));
            continue;
        };
        assert!(!problems.is_empty(), "{}: is refused without a word", path.display());
        let mut told = String::new();
        for problem in &problems {
            told += &format!("{}\n", problem.for_people());
        }
        told += "--- log\n";
        for problem in &problems {
            told += &format!("{}\n", problem.for_log());
        }
        let text = path.with_extension("txt");
        if bless {
            fs::write(&text, &told).expect("a writable folder");
        }
        match fs::read_to_string(&text) {
            Ok(wanted) if wanted == told => {}
            Ok(wanted) => wrong.push(format!("{}\nwanted:\n{wanted}told:\n{told}", text.display())),
            Err(_) => wrong.push(format!("{} is missing; told:\n{told}", text.display())),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_pairs();
}

/// Each bad policy has its file of messages, and each such file its policy.
fn assert_pairs() {
    let stems = |extensions: &[&str]| -> Vec<String> {
        let stem = |path: &PathBuf| path.file_stem().expect("a name").to_string_lossy().into_owned();
        files("bad", extensions).iter().map(stem).collect()
    };
    let policies = stems(&["yaml", "json"]);
    let messages = stems(&["txt"]);
    let alone: Vec<_> = messages.iter().filter(|name| !policies.contains(name)).collect();
    assert!(alone.is_empty(), "messages without a policy: {alone:?}");
    let alone: Vec<_> = policies.iter().filter(|name| !messages.contains(name)).collect();
    assert!(alone.is_empty(), "policies without messages: {alone:?}");
    assert_eq!(policies.iter().collect::<BTreeSet<_>>().len(), policies.len(), "a name stands for two policies");
    let all = fs::read_dir(format!("{POLICIES}/bad")).expect("the folder is there").count();
    assert_eq!(all, policies.len() + messages.len(), "a file is neither a policy nor its messages");
}

/// Puts `marker` in place of the text or key that is the `nth` of a tree; false where there are fewer.
fn mark(tree: &mut Tree, nth: &mut usize, marker: &str) -> bool {
    let mut mark_text = |text: &mut String| {
        let found = *nth == 0;
        if found {
            *text = marker.to_owned();
        }
        *nth = nth.wrapping_sub(1);
        found
    };
    match tree {
        Tree::Text(text) => mark_text(text),
        Tree::List(items) => items.iter_mut().any(|item| mark(item, nth, marker)),
        Tree::Map(pairs) => pairs.iter_mut().any(|(key, value)| {
            let mut mark_key = |key: &mut String| {
                let found = *nth == 0;
                if found {
                    *key = marker.to_owned();
                }
                *nth = nth.wrapping_sub(1);
                found
            };
            mark_key(key) || mark(value, nth, marker)
        }),
        Tree::Null | Tree::Bool(_) | Tree::Int(_) | Tree::Float(_) => false,
    }
}

#[test]
fn no_text_and_no_key_of_a_user_is_told_to_a_log() {
    // No name, a name, a tenant, the value of no secret, a path, and a limit that is too long to be told.
    let markers = [
        "Marker Of A User",
        "marker-of-a-user",
        "user.marker-of-a-user",
        "/marker-of-a-user/*",
        "1/markerofauseralone",
    ];
    let mut decoded = 0;
    for path in files("bad", &["yaml", "json"]).into_iter().chain(files("good", &["yaml"])) {
        let text = fs::read_to_string(&path).expect("a readable policy");
        let Ok(whole) = serde_saphyr::from_str::<Tree>(&text) else {
            continue;
        };
        for marker in markers {
            for nth in 0.. {
                let mut tree = whole.clone();
                if !mark(&mut tree, &mut nth.clone(), marker) {
                    break;
                }
                decoded += 1;
                for problem in Policy::from_tree(&tree, ENVIRONMENT).err().unwrap_or_default() {
                    let told = problem.for_log().to_string();
                    assert!(!told.to_lowercase().contains("marker"), "{}, text {nth}: {told}", path.display());
                }
            }
        }
    }
    assert!(decoded > 5_000, "{decoded}");
}

#[test]
fn no_value_of_a_secret_is_told_to_anybody() {
    for path in files("bad", &["yaml", "json"]) {
        for problem in decode(&path).err().unwrap_or_default() {
            for told in [problem.for_people().to_string(), problem.for_log().to_string()] {
                assert!(!told.contains("hunter2"), "{}: {told}", path.display());
            }
        }
    }
    let policy = format!("{:?}", good("everything"));
    assert!(!policy.contains("\"secret\""), "{policy}");
}

fn only(policy: &Policy) -> &Rule {
    let [rule] = policy.rules.as_slice() else { panic!("{:?}", policy.rules) };
    rule
}

/// The shares of one proxy, by tier and entry: requests, period in seconds and burst.
fn own(rule: &Rule) -> Vec<Vec<Option<(u64, u64, u64)>>> {
    let told = |limit: Limit| (limit.requests(), limit.period().0 / 1000, limit.burst());
    rule.tiers.iter().map(|tier| tier.entries.iter().map(|entry| entry.own.map(told)).collect()).collect()
}

fn limit(requests: u64, seconds: u64, burst: u64) -> Allowance {
    Allowance::Limited(Limit::new(requests, Ms(seconds * 1000), burst).expect("a limit"))
}

#[test]
fn what_is_observed_arrives_in_the_plan() {
    let told = Observe {
        secret: Some(Credential("secret".to_owned())),
        debug_header: "x-why".to_owned(),
        top_path: Some("/.weir/top".to_owned()),
        filter_state: true,
    };
    assert_eq!(good("observe").observe, Some(told));
    assert_eq!(good("smallest").observe, None);
}

#[test]
fn what_the_smallest_policy_leaves_out_is_as_the_page_says() {
    let policy = good("smallest");
    assert_eq!(policy.namespace, "rl");
    let limiter = policy.limiters.first();
    assert_eq!((limiter.name.as_str(), limiter.cluster.as_str()), ("main", "webdis"));
    assert_eq!((limiter.authority.as_str(), limiter.timeout), ("webdis", Ms(20)));
    assert_eq!(limiter.authorization, None);
    assert_eq!(limiter.breaker, BreakerLimits { failures: 5, share: 500, within: Ms(1000), probe_every: Ms(200) });
    assert_eq!(limiter.max_new_keys_per_second, None);
    assert_eq!((policy.proxies, policy.table_entries), (None, 65_536));
    assert_eq!(policy.classes.names, ["default"]);
    assert!(policy.classes.matches.is_empty());
    let rule = only(&policy);
    assert_eq!(rule.name, "per-user");
    let [source] = rule.sources.as_slice() else { panic!("{:?}", rule.sources) };
    assert_eq!((source.label.as_str(), source.storage), ("header", Storage::Plain));
    assert_eq!(source.origin, Origin::Header("x-user-id".to_owned()));
    let anonymous = Tenant::new("none", b"anonymous", Storage::Plain, &HashKey::default());
    assert_eq!(rule.missing, Missing::As(anonymous));
    assert_eq!((rule.tenants.len(), rule.default_tier, rule.on_error), (0, 0, OnError::Allow));
    let [tier] = rule.tiers.as_slice() else { panic!("{:?}", rule.tiers) };
    assert_eq!((tier.name.as_str(), tier.by_class.as_slice()), ("default", [0].as_slice()));
    let [entry] = tier.entries.as_slice() else { panic!("{:?}", tier.entries) };
    assert_eq!((entry.name.as_str(), entry.allowance, entry.own), ("default", limit(100, 60, 100), None));
    assert_eq!(rule.mode, Mode::Lease(Terms { life: Ms(300_000), lend: 500 }));
    assert_eq!((rule.shadow, &rule.idempotency, rule.headers), (false, &None, true));
    let response = &policy.response;
    assert_eq!((response.status, response.content_type.as_str()), (429, "application/json"));
    assert_eq!(response.body, r#"{"error":"rate_limited","rule":"{rule}","retry_after":{retry_after}}"#);
    assert_eq!((response.x_ratelimit, response.ratelimit, response.reset), (true, false, Reset::Epoch));
    assert_eq!((response.upstream_headers, response.retry_after_jitter), (UpstreamHeaders::Replace, 100));
}

#[test]
fn each_word_that_is_built_arrives_in_the_plan() {
    let policy = good("everything");
    assert_eq!(policy.namespace, "shop_2");
    let limiter = policy.limiters.first();
    assert_eq!(limiter.cluster, "outbound|7379||webdis.infra.svc.cluster.local");
    assert_eq!((limiter.authority.as_str(), limiter.timeout), ("webdis.infra", Ms(1000)));
    assert_eq!(limiter.authorization, Some(Credential("secret".to_owned())));
    assert_eq!(limiter.breaker, BreakerLimits { failures: 3, share: 250, within: Ms(2000), probe_every: Ms(10) });
    assert_eq!(limiter.max_new_keys_per_second, Some(Limit::new(500, Ms(1000), 500).expect("a limit")));
    assert_eq!((policy.proxies, policy.table_entries), (Some(7), 1000));
    assert_eq!(policy.classes.names, ["default", "health", "export", "write", "read"]);
    let pattern = |text| Some(Pattern::parse(text).expect("a pattern"));
    let methods = |list: &[&str]| Some(list.iter().map(|method| (*method).to_owned()).collect::<Vec<_>>());
    let wanted = [
        (1, None, pattern("/healthz"), 1, true),
        (2, methods(&["POST"]), pattern("/v1/reports/{id}/export"), 10, false),
        (3, methods(&["POST", "PUT", "PATCH", "DELETE"]), None, 1, false),
        (4, methods(&["GET", "HEAD"]), pattern("/v1/**"), 1, false),
        (3, None, pattern("/%7Bbulk%7D/**"), 3, false),
    ];
    assert_eq!(policy.classes.matches.len(), wanted.len());
    for (found, (class, methods, path, cost, exempt)) in policy.classes.matches.iter().zip(wanted) {
        assert_eq!((found.class, &found.methods, &found.path), (ClassId(class), &methods, &path));
        assert_eq!((found.cost, found.exempt), (cost, exempt));
    }
    let rule = only(&policy);
    let sources: Vec<_> =
        rule.sources.iter().map(|source| (source.label.as_str(), &source.origin, source.storage)).collect();
    let wanted = [
        ("key", &Origin::Header("x-api-key".to_owned()), Storage::Secret),
        ("authorization", &Origin::Bearer, Storage::Secret),
        ("user", &Origin::BasicUser, Storage::Secret),
        ("header", &Origin::Header("x-org".to_owned()), Storage::Plain),
        ("all", &Origin::Constant("all of them".to_owned()), Storage::Plain),
    ];
    assert_eq!(sources, wanted);
    let key = HashKey::new("secret");
    let plain = |label, value: &str| Tenant::new(label, value.as_bytes(), Storage::Plain, &key);
    assert_eq!(rule.missing, Missing::As(plain("none", "nobody")));
    let tenants = [
        (plain("header", "acme"), 1),
        (plain("header", "a:b/c"), 1),
        (Tenant::from_hash("key", "~000102030405060708090a0b0c0d0e0f").expect("a hash"), 1),
        (plain("none", "nobody"), 2),
    ];
    assert_eq!(rule.tenants, tenants.into());
    assert_eq!((rule.default_tier, rule.mode, rule.on_error), (0, Mode::Exact, OnError::Local));
    let secret = |value: &str| Tenant::new("key", value.as_bytes(), Storage::Secret, &rule.hash_key);
    assert_eq!(
        secret("v"),
        Tenant::new("key", b"v", Storage::Secret, &key),
        "the key of the hash is the variable's value"
    );
    let tiers: Vec<_> = rule
        .tiers
        .iter()
        .map(|tier| {
            let entries = tier.entries.iter().map(|entry| (entry.name.as_str(), entry.allowance)).collect::<Vec<_>>();
            (tier.name.as_str(), entries, tier.by_class.clone())
        })
        .collect();
    let wanted = [
        (
            "free",
            vec![("default", limit(60, 60, 60)), ("write", limit(10, 60, 10)), ("export", limit(20, 3600, 30))],
            vec![0, 0, 2, 1, 0],
        ),
        (
            "gold",
            vec![("default", limit(600, 90, 600)), ("export", Allowance::Unlimited), ("read", Allowance::Deny)],
            vec![0, 0, 1, 0, 2],
        ),
        ("closed", vec![("default", Allowance::Deny)], vec![0, 0, 0, 0, 0]),
    ];
    assert_eq!(tiers, wanted);
    // A seventh of 60, 10 and 30 is 8, 1 and 4, but the largest costs that meet them are 1, 3 and 10.
    let wanted = [
        vec![Some((60, 7 * 60, 8)), Some((10, 7 * 60, 3)), Some((20, 7 * 3600, 10))],
        vec![Some((600, 7 * 90, 85)), None, None],
        vec![None],
    ];
    assert_eq!(own(only(&policy)), wanted);
    let response = &policy.response;
    assert_eq!((response.status, response.content_type.as_str()), (503, "text/plain; charset=utf-8"));
    assert_eq!(response.body, "{rule}: come back in {retry_after} s");
    // 0.2345 is kept to three digits.
    assert_eq!((response.x_ratelimit, response.ratelimit, response.reset), (false, true, Reset::Seconds));
    assert_eq!((response.upstream_headers, response.retry_after_jitter), (UpstreamHeaders::Keep, 235));
}

#[test]
fn limits_by_class_need_no_tiers() {
    let policy = good("by_class_without_tiers");
    let [tier] = only(&policy).tiers.as_slice() else { panic!("{policy:?}") };
    let entries: Vec<_> = tier.entries.iter().map(|entry| (entry.name.as_str(), entry.allowance)).collect();
    assert_eq!(entries, [("default", Allowance::Unlimited), ("write", limit(1, 86_400, 1))]);
    assert_eq!(tier.by_class, [0, 1]);
    let rule = only(&policy);
    let [source] = rule.sources.as_slice() else { panic!("{:?}", rule.sources) };
    assert_eq!((source.label.as_str(), &source.origin), ("constant", &Origin::Constant("all".to_owned())));
    assert_eq!(rule.missing, Missing::Deny);
    assert_eq!((policy.response.x_ratelimit, policy.response.retry_after_jitter), (true, 0));
}

#[test]
fn an_integer_may_come_as_a_double() {
    let policy = good("numbers_of_doubles");
    assert_eq!(policy.limiters.first().timeout, Ms(1));
    assert_eq!(policy.classes.matches.first().map(|bulk| bulk.cost), Some(1000));
    let entry = only(&policy).tiers.first().and_then(|tier| tier.entries.first());
    assert_eq!(entry.map(|entry| entry.allowance), Some(limit(1000, 31 * 86_400, 2000)));
    assert_eq!(only(&policy).missing, Missing::Skip);
    assert_eq!((policy.response.status, policy.response.retry_after_jitter), (429, 1000));
}

#[test]
fn the_largest_numbers_are_allowed() {
    let policy = good("largest");
    assert_eq!(policy.namespace.len(), 32);
    assert_eq!(policy.limiters.first().timeout, Ms(60_000));
    let entry = only(&policy).tiers.first().and_then(|tier| tier.entries.first());
    assert_eq!(entry.map(|entry| entry.allowance), Some(limit(9_007_199_254_740_991, 1, 9_007_199_254_740)));
    assert_eq!(own(only(&policy)), [[Some((9_007_199_254_740_991, 100_000, 90_071_992))]]);
    let breaker = BreakerLimits { failures: i64::MAX as u64, share: 1000, within: Ms(60_000), probe_every: Ms(60_000) };
    assert_eq!((policy.limiters.first().breaker, policy.table_entries), (breaker, 16_777_216));
    let keys = Limit::new(1_000_000_000, Ms(1000), 1_000_000_000).expect("a limit");
    assert_eq!(policy.limiters.first().max_new_keys_per_second, Some(keys));
}

#[test]
fn a_local_share_is_the_limit_among_the_proxies() {
    let policy = good("local");
    assert_eq!((only(&policy).mode, only(&policy).on_error, policy.proxies), (Mode::Local, OnError::Deny, Some(3)));
    // What a rule says of a failure that it cannot have changes nothing.
    let with = good("local_with_on_error");
    assert_eq!((only(&with).mode, only(&with).on_error), (Mode::Local, OnError::Deny));
    // What is left out of a breaker is as the page says.
    let breaker = BreakerLimits { failures: 1, share: 500, within: Ms(1000), probe_every: Ms(200) };
    assert_eq!(policy.limiters.first().breaker, breaker);
    // 100 / 3 is 33, and 200 / 3 is 66, which hold 10 and 40; 2 / 3 is none, and a bucket holds one token at least.
    let wanted = [[Some((100, 180, 33)), Some((600, 3 * 3600, 66)), Some((1, 3, 1)), None]];
    assert_eq!(own(only(&policy)), wanted);
}

#[test]
fn each_mode_has_its_own_words() {
    let policy = good("modes");
    let lease = |life, lend| Mode::Lease(Terms { life: Ms(life), lend });
    let wanted = [
        ("exact", Mode::Exact, OnError::Allow, false),
        ("lease", lease(300_000, 500), OnError::Local, false),
        ("lease-short", lease(1000, 100), OnError::Deny, false),
        ("lease-long", lease(3_600_000, 900), OnError::Deny, false),
        ("lease-life", lease(60_000, 500), OnError::Deny, false),
        // 0.2345 is kept to three digits.
        ("lease-lend", lease(300_000, 235), OnError::Deny, true),
        ("async", Mode::Async { sync_interval: Ms(1000) }, OnError::Allow, false),
        ("async-often", Mode::Async { sync_interval: Ms(10) }, OnError::Allow, false),
        ("async-seldom", Mode::Async { sync_interval: Ms(60_000) }, OnError::Allow, false),
        ("local", Mode::Local, OnError::Deny, false),
    ];
    let rules = policy.rules.iter().map(|rule| (rule.name.as_str(), rule.mode, rule.on_error, rule.shadow));
    assert_eq!(rules.collect::<Vec<_>>(), wanted);
    // A local share stands where a rule needs one, and nowhere else.
    let shares = policy.rules.iter().filter(|rule| own(rule) != [[None]]).map(|rule| (rule.name.as_str(), own(rule)));
    let wanted = [("lease", vec![vec![Some((2, 4 * 60, 1))]]), ("local", vec![vec![Some((8, 4 * 60, 2))]])];
    assert_eq!(shares.collect::<Vec<_>>(), wanted);
    let idempotency = policy.rules.last().and_then(|rule| rule.idempotency.clone());
    assert_eq!(idempotency, Some(Idempotency { header: "x-request-id".to_owned(), keep: Ms(600_000) }));
}

#[test]
fn rules_are_kept_in_order_each_with_its_own_words() {
    let policy = good("several");
    let idempotency = |header: &str, keep| Some(Idempotency { header: header.to_owned(), keep: Ms(keep) });
    let wanted = [
        ("per-client", 3, false, idempotency("idempotency-key", 86_400_000)),
        ("reads", 2, false, None),
        ("writes", 1, false, idempotency("x-once", 1000)),
        ("per-user", 1, true, None),
    ];
    let told = |rule: &Rule| (rule.tiers.len(), rule.shadow, rule.idempotency.clone());
    let rules: Vec<_> = policy.rules.iter().map(|rule| (rule.name.as_str(), told(rule))).collect();
    assert_eq!(rules, wanted.map(|(name, tiers, shadow, idempotency)| (name, (tiers, shadow, idempotency))));
    let labels: Vec<_> =
        policy.rules.iter().flat_map(|rule| &rule.sources).map(|source| source.label.as_str()).collect();
    assert_eq!(labels, ["header", "device", "constant", "header", "constant", "header"]);
    let trusted: Vec<_> = policy.rules.iter().flat_map(|rule| &rule.sources).map(|source| source.trusted).collect();
    assert_eq!(trusted, [false, false, true, true, true, true]);
    assert_eq!(good("sixteen").rules.len(), 16);
}

#[test]
fn whatever_names_tenant_class_and_limit_arrives_in_the_plan() {
    let policy = good("identity");
    let paths =
        Paths { malformed_is_default: true, ignore_case: true, ignore_trailing_slash: true, strip_parameters: true };
    assert_eq!(policy.classes.paths, paths);
    let pattern = |text| Some(Pattern::parse(text).expect("a pattern"));
    let property = |parts: &[&str]| Origin::Property(parts.iter().map(|part| (*part).to_owned()).collect(), Kind::Text);
    let is = |origin, exact: &str| Condition { origin, exact: Some(exact.to_owned()) };
    let there = |origin| Condition { origin, exact: None };
    let bytes = |origin: Origin| match origin {
        Origin::Property(path, _) => Origin::Property(path, Kind::Bytes),
        other => other,
    };
    let route = || bytes(property(&["xds", "route_metadata", "filter_metadata", "weir", "class"]));
    let (header, query) = (|name: &str| Origin::Header(name.to_owned()), |name: &str| Origin::Query(name.to_owned()));
    let wanted = [
        ("preflight", None, vec![there(header("access-control-request-method"))]),
        (
            "beta",
            None,
            vec![
                is(Origin::Host, "*.beta.example.com"),
                is(header("x-beta"), "1"),
                is(query("v"), "2"),
                there(query("debug")),
            ],
        ),
        ("cart", pattern("/shop.v1.cart/{any}"), vec![]),
        ("cart", pattern("/shop.v1.cart/get"), vec![]),
        ("cart", pattern("/{any}/watch"), vec![]),
        ("route", None, vec![is(bytes(property(&["xds", "route_name"])), "checkout")]),
        ("route", None, vec![is(route(), "checkout")]),
        ("route", None, vec![is(Origin::Host, "[::1]"), there(route())]),
    ];
    let found: Vec<_> = policy
        .classes
        .matches
        .iter()
        .map(|found| (policy.classes.names[found.class.0].as_str(), found.path.clone(), found.conditions.clone()))
        .collect();
    assert_eq!(found, wanted);
    let [per_ip, per_user] = policy.rules.as_slice() else { panic!("{:?}", policy.rules) };
    let told = |rule: &Rule| -> Vec<(String, Origin, Storage, bool, bool)> {
        let told = |source: &Source| {
            (source.label.clone(), source.origin.clone(), source.storage, source.trusted, source.refuses_doubled)
        };
        rule.sources.iter().map(told).collect()
    };
    let row = |label: &str, origin, storage, trusted, doubled| (label.to_owned(), origin, storage, trusted, doubled);
    let (plain, secret) = (Storage::Plain, Storage::Secret);
    let forwarded = |entry, prefix| Origin::ClientIp(AddressFrom::Forwarded(entry), prefix);
    let wanted = [
        row("client_ip", Origin::ClientIp(AddressFrom::Host, 56), plain, true, false),
        row("edge", forwarded(1, 64), plain, true, false),
        row("inner", forwarded(0, 128), plain, true, false),
        row("peer", forwarded(0, 64), plain, true, false),
    ];
    assert_eq!(told(per_ip), wanted);
    let part = |label: &str, origin, storage, trusted| Source {
        label: label.to_owned(),
        origin,
        storage,
        trusted,
        refuses_doubled: false,
    };
    let both = vec![part("host", Origin::Host, plain, true), part("header", header("x-org"), plain, true)];
    let three = vec![
        part("query", query("q"), secret, false),
        part("path_segment", Origin::PathSegment(1, paths), plain, false),
        part("client_ip", Origin::ClientIp(AddressFrom::Host, 64), plain, true),
    ];
    let wanted = [
        row("user", header("x-user"), plain, false, true),
        row("authorization", Origin::Bearer, secret, false, true),
        row("query", query("api_key"), secret, false, false),
        row("cookie", Origin::Cookie("sid".to_owned()), plain, false, false),
        row("host", Origin::Host, plain, false, false),
        row("path_segment", Origin::PathSegment(2, paths), plain, false, false),
        row("property", property(&["metadata", "sub"]), plain, false, false),
        row("all", Origin::All(both), plain, true, false),
        row("three", Origin::All(three), secret, false, false),
        row("constant", Origin::Constant("rest".to_owned()), plain, true, false),
    ];
    assert_eq!(told(per_user), wanted);
    let [entry] = per_ip.tiers[0].entries.as_slice() else { panic!("{:?}", per_ip.tiers) };
    let limits = |entry: &Entry| -> Vec<Allowance> { entry.limits().map(Allowance::Limited).collect() };
    assert_eq!(limits(entry), [limit(100, 1, 100), limit(1000, 60, 1000), limit(5000, 3600, 10_000)]);
    let own: Vec<_> = entry.also.iter().filter_map(|(_, own)| own.map(Allowance::Limited)).collect();
    assert_eq!(own, [limit(1000, 600, 100), limit(5000, 36_000, 1000)]);
    let names: Vec<_> = per_user.tiers.iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!(names, ["free", "gold", "", "", ""]);
    let sources: Vec<_> = per_user.tier_sources.iter().map(|source| source.origin.clone()).collect();
    assert_eq!(sources, [property(&["metadata", "plan"]), header("x-plan")]);
    let key = HashKey::new("secret");
    let tenant = |label, value: &str| Tenant::new(label, value.as_bytes(), plain, &key);
    let tenants = [
        (tenant("all", "a,b"), 1),
        (tenant("user", "ltd"), 0),
        (tenant("user", "mallory"), 2),
        (tenant("constant", "rest"), 3),
        (tenant("all", "a,acme"), 4),
    ];
    assert_eq!(per_user.tenants, tenants.into());
    let words: Vec<_> = per_user.tiers.iter().map(|tier| tier.entries[0].allowance).collect();
    assert_eq!(
        words,
        [limit(60, 60, 60), limit(600, 60, 600), Allowance::Deny, limit(60, 60, 60), Allowance::Unlimited]
    );
}

#[test]
fn every_good_policy_is_looked_at() {
    let names: Vec<String> = files("good", &["yaml"])
        .iter()
        .map(|path| path.file_stem().expect("a name").to_string_lossy().into())
        .collect();
    let looked_at = [
        "by_class_without_tiers",
        "everything",
        "identity",
        "largest",
        "limiter_by_words_of_one",
        "limiters",
        "local",
        "local_with_on_error",
        "modes",
        "networks",
        "numbers_of_doubles",
        "observe",
        "several",
        "sixteen",
        "smallest",
    ];
    assert_eq!(names, looked_at);
}

#[test]
fn yaml_and_json_of_one_policy_are_one_tree() {
    let yaml = "{a: 1, b: [true, ~, 1.5, 1e3, \"text\"], c: {d: -1}}";
    let json = br#"{"a": 1, "b": [true, null, 1.5, 1e3, "text"], "c": {"d": -1}}"#;
    assert_eq!(Ok(tree(yaml)), Tree::from_host(json));
}

/// A policy whose only rule has these limits.
fn with_limits(limits: &str) -> Result<Policy, Vec<String>> {
    let text = format!(
        r#"{{"version": 1, "limiters": {{"main": {{"transport": "webdis", "cluster": "w"}}}},
            "rules": [{{"name": "r", "key": [{{"constant": "all"}}], "mode": "exact", "on_error": "deny",
                "tier": {{"default": "algorithm"}}, "limits": {limits}}}]}}"#
    );
    let told = |problems: Vec<Problem>| problems.iter().map(|problem| problem.for_people().to_string()).collect();
    Policy::from_host(text.as_bytes(), &|_| None).map_err(told)
}

#[test]
fn an_object_is_a_limit_exactly_if_it_has_requests() {
    // Words that a limit may get one day are names of tiers as any other.
    let policy = with_limits(r#"{"algorithm": "5/m", "window": {"requests": 7, "per": "1m"}}"#).expect("tiers");
    let names: Vec<&str> = only(&policy).tiers.iter().map(|tier| tier.name.as_str()).collect();
    assert_eq!(names, ["algorithm", "window"]);
    // What has been no name stays none, and says what it was taken for.
    let missing = |field| format!("rules[0].limits.{field}: is missing");
    for (limits, field) in [
        (r#"{"per": "1m", "algorithm": "5/m"}"#, "requests"),
        (r#"{"burst": 5, "algorithm": "5/m"}"#, "requests"),
        (r#"{"requests": 5, "algorithm": "5/m"}"#, "per"),
    ] {
        let told = with_limits(limits).expect_err("no names");
        assert!(told.iter().any(|problem| problem.starts_with(&missing(field))), "{told:?}");
    }
}
