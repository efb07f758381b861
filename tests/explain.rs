//! What the library says of a policy and a request, natively and under Node: without the tool, and without its words for
//! files and terminals.

use wasm_bindgen_test::wasm_bindgen_test;
use weir::clock::Ms;
use weir::explain::{
    AnswerSeen, Because, BucketSeen, Charge, ClassSeen, Described, Explanation, HeaderSeen, LimiterBecause,
    LimiterSeen, Note, OnFailure, PathSeen, RepeatSeen, RuleResult, RuleSeen, SourceSeen, Subject, TierBecause,
    TierSeen, Undescribed, When,
};
use weir::policy::{AlgorithmName, Limit, Mode, Origin};

const POLICY: &str = r#"{
    "version": 1, "proxies": 2, "hash_secret_env": "HASH_KEY",
    "limiters": {"main": {"transport": "webdis", "cluster": "webdis"}},
    "classes": [
        {"class": "health", "match": {"path": "/healthz"}, "exempt": true},
        {"class": "write", "match": {"methods": ["POST", "PUT"], "path": "/v1/**"}, "cost": 3}
    ],
    "rules": [
        {"name": "per-user", "key": [{"header": {"name": "x-user-id", "as": "user", "trusted": true}}],
         "tier": {"default": "free", "tenants": {"user.acme": "gold"}},
         "limits": {"free": {"default": "60/m", "write": ["10/m", "100/h"]}, "gold": {"default": "unlimited"}},
         "missing": "deny", "mode": "exact", "idempotency": {"header": "idempotency-key"}, "on_error": "local"},
        {"name": "per-key", "key": [{"query": {"name": "api_key", "secret": true, "trusted": true, "doubled": "refuse"}}],
         "missing": "skip", "mode": "exact", "limits": "5/s", "on_error": "deny"}
    ],
    "response": {"headers": ["x-ratelimit"], "reset": "epoch", "retry_after_jitter": 0.1}
}"#;

fn subject(hash_key: Option<&str>) -> Subject {
    let environment = |name: &str| hash_key.filter(|_| name == "HASH_KEY").map(str::to_owned);
    Subject::from_host(POLICY.as_bytes(), &environment).expect("a good policy")
}

fn described(line: &str, headers: &[&str]) -> Described {
    let mut described = Described::new(line).expect("a request line");
    headers.iter().for_each(|header| drop(described.header(header).expect("a header")));
    described
}

fn limit(requests: u64, seconds: u64, burst: u64) -> Limit {
    Limit::new(requests, Ms(seconds * 1000), burst).expect("a limit")
}

fn sent(headers: &[(&'static str, &str)]) -> Vec<(&'static str, HeaderSeen)> {
    let value = |name: &str, value: &str| match name {
        "x-ratelimit-reset" => HeaderSeen::FromNow(value.to_owned()),
        _ => HeaderSeen::Text(value.to_owned()),
    };
    headers.iter().map(|(name, text)| (*name, value(name, text))).collect()
}

/// A refusal because one bucket of `per-user` is empty.
fn refused(per: u64, limit: &str, retry_after: &str, reset: &str) -> AnswerSeen {
    AnswerSeen {
        when: When::Empty { rule: "per-user".to_owned(), per: Some(Ms(per)), algorithm: AlgorithmName::TokenBucket },
        status: Some(429),
        headers: sent(&[
            ("content-type", "application/json"),
            ("retry-after", retry_after),
            ("x-ratelimit-limit", limit),
            ("x-ratelimit-remaining", "0"),
            ("x-ratelimit-reset", reset),
        ]),
        body: Some(format!(r#"{{"error":"rate_limited","rule":"per-user","retry_after":{retry_after}}}"#)),
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_is_explained_by_its_class_each_rule_and_each_state_of_its_buckets() {
    let request = described("POST /v1//reports/7?full=1", &["X-User-Id: bob", "idempotency-key: 7"]);
    let bucket = |per: &str, limit, own| BucketSeen {
        key: format!("rl:{{user.bob}}:per-user:write:{per}:t3"),
        limiter: None,
        is_local: false,
        limit,
        own: Some(own),
        offset: None,
    };
    let per_user = RuleSeen {
        index: 0,
        name: "per-user".to_owned(),
        mode: Mode::Exact,
        is_shadow: false,
        tells_clients: true,
        source: SourceSeen::Key { index: 0, origin: Origin::Header("x-user-id".to_owned()) },
        tenant: Some("user.bob".to_owned()),
        tier: Some(TierSeen { name: Some("free".to_owned()), because: TierBecause::Default }),
        entry: Some("write".to_owned()),
        result: RuleResult::Takes {
            buckets: vec![
                bucket("60000", limit(10, 60, 10), limit(10, 120, 5)),
                bucket("3600000", limit(100, 3600, 100), limit(100, 7200, 50)),
            ],
            on_failure: OnFailure::Local,
            repeat: Some(RepeatSeen { header: "idempotency-key".to_owned(), keep: Ms(600_000), is_sent: true }),
        },
    };
    let per_key = RuleSeen {
        index: 1,
        name: "per-key".to_owned(),
        mode: Mode::Exact,
        is_shadow: false,
        tells_clients: true,
        source: SourceSeen::Nothing,
        tenant: None,
        tier: None,
        entry: None,
        result: RuleResult::Skipped,
    };
    let passes = AnswerSeen {
        when: When::Full,
        status: None,
        headers: sent(&[("x-ratelimit-limit", "10"), ("x-ratelimit-remaining", "7"), ("x-ratelimit-reset", "18")]),
        body: None,
    };
    let subject = subject(Some("key"));
    let wanted = Explanation {
        fingerprint: subject.policy().fingerprint,
        path: PathSeen::Normal("/v1/reports/7".to_owned()),
        class: ClassSeen {
            name: Some("write".to_owned()),
            because: Because::First { index: 1, wants: "methods POST, PUT; path /v1/**".to_owned() },
            charge: Charge::Cost(3),
        },
        rules: vec![per_user, per_key],
        answers: vec![passes, refused(60_000, "10", "18", "60"), refused(3_600_000, "100", "108", "3600")],
        notes: vec![Note::Jitter(100)],
    };
    assert_eq!(subject.explain(&request), wanted);
}

/// What each rule says of a request that it asks no tokens for, by name, and what the client gets.
fn said(subject: &Subject, request: &Described) -> (Vec<RuleResult>, Option<u16>, Option<String>) {
    let explanation = subject.explain(request);
    let [answer] = explanation.answers.as_slice() else { panic!("{:?}", explanation.answers) };
    assert_eq!(answer.when, When::Always);
    (explanation.rules.into_iter().map(|rule| rule.result).collect(), answer.status, answer.body.clone())
}

#[wasm_bindgen_test(unsupported = test)]
fn a_request_that_takes_no_tokens_is_told_what_decides_it_instead() {
    let subject = subject(Some("key"));
    let nobody = described("GET /v1/x", &[]);
    let forbidden = r#"{"error":"forbidden","rule":"per-user"}"#.to_owned();
    assert_eq!(
        said(&subject, &nobody),
        (vec![RuleResult::Nobody, RuleResult::Skipped], Some(403), Some(forbidden)),
        "missing is deny in the one and skip in the other"
    );

    let gold = described("GET /v1/x", &["x-user-id: acme"]);
    assert_eq!(said(&subject, &gold), (vec![RuleResult::Unlimited, RuleResult::Skipped], None, None));
    let because = TierBecause::Named { by_overrides: false, by_network: false };
    let tier = Some(TierSeen { name: Some("gold".to_owned()), because });
    assert_eq!(subject.explain(&gold).rules[0].tier, tier);

    let doubled = described("GET /v1/x?api_key=a&api_key=b", &["x-user-id: acme"]);
    let body = r#"{"error":"doubled","rule":"per-key"}"#.to_owned();
    let results = vec![RuleResult::Unlimited, RuleResult::DoubledTenant];
    assert_eq!(said(&subject, &doubled), (results, Some(400), Some(body)));

    let exempt = described("GET /healthz", &["x-user-id: acme"]);
    assert_eq!(said(&subject, &exempt), (vec![], None, None));
    let because = Because::First { index: 0, wants: "path /healthz".to_owned() };
    let class = ClassSeen { name: Some("health".to_owned()), because, charge: Charge::Exempt };
    assert_eq!(subject.explain(&exempt).class, class);

    let malformed = described("GET /%zz", &["x-user-id: acme"]);
    let body = r#"{"error":"malformed_path"}"#.to_owned();
    assert_eq!(said(&subject, &malformed), (vec![], Some(400), Some(body)));
    let class = ClassSeen { name: None, because: Because::Malformed, charge: Charge::Refused };
    assert_eq!((subject.explain(&malformed).path, subject.explain(&malformed).class), (PathSeen::Malformed, class));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_hash_is_left_out_where_its_key_is_unknown_and_is_the_modules_where_it_is_known() {
    let request = described("GET /v1/x?api_key=sesame", &["x-user-id: acme"]);
    let seen = |hash_key| {
        let explanation = subject(hash_key).explain(&request);
        let rule = explanation.rules[1].clone();
        let RuleResult::Takes { buckets, .. } = rule.result else { panic!("{rule:?}") };
        let [bucket] = buckets.as_slice() else { panic!("{buckets:?}") };
        (rule.tenant.expect("a tenant"), bucket.key.clone(), explanation.notes)
    };
    let (tenant, key, notes) = seen(None);
    assert_eq!(tenant, "query.~<hash: set HASH_KEY>");
    assert_eq!(key, "rl:{query.~<hash: set HASH_KEY>}:per-key:default:1000:t3");
    assert_eq!(notes, [Note::HashKeyUnknown("HASH_KEY".to_owned()), Note::Jitter(100)]);
    let (tenant, key, notes) = seen(Some("key"));
    // HMAC-SHA256 of the value by the key, its first half.
    assert_eq!(tenant, "query.~cd91ff0322095dc25c0f7eda2be6d55e");
    assert_eq!(key, format!("rl:{{{tenant}}}:per-key:default:1000:t3"));
    assert_eq!(notes, [Note::Jitter(100)]);
}

/// The policy with two limiters, the buckets of `per-user` and of `per-key` being where these words say.
fn routed(per_user: &str, per_key: &str) -> String {
    let policy = POLICY.replacen(r#""webdis"}}"#, r#""webdis"}, "own": {"transport": "webdis", "cluster": "own"}}"#, 1);
    let policy =
        policy.replacen(r#"{"name": "per-user""#, &format!(r#"{{"limiter": {per_user}, "name": "per-user""#), 1);
    policy.replacen(r#"{"name": "per-key""#, &format!(r#"{{"limiter": {per_key}, "name": "per-key""#), 1)
}

/// The limiters of the buckets that a request of this user with the key `sesame` takes from, one for each rule.
fn limiters(policy: &str, hash_key: Option<&str>, user: &str) -> Vec<Option<LimiterSeen>> {
    let environment = |name: &str| hash_key.filter(|_| name == "HASH_KEY").map(str::to_owned);
    let subject = Subject::from_host(policy.as_bytes(), &environment).expect("a good policy");
    let request = described("GET /v1/x?api_key=sesame", &[&format!("x-user-id: {user}")]);
    let buckets = subject.explain(&request).rules.into_iter().flat_map(|rule| match rule.result {
        RuleResult::Takes { buckets, .. } => buckets,
        other => panic!("{other:?}"),
    });
    buckets.map(|bucket| bucket.limiter).collect()
}

fn known(name: &str, because: LimiterBecause) -> Option<LimiterSeen> {
    Some(LimiterSeen::Known { name: name.to_owned(), because })
}

#[wasm_bindgen_test(unsupported = test)]
fn a_bucket_is_told_with_its_limiter_and_why_it_is_there_where_there_are_several() {
    let policy = routed(r#"{"default": "main", "tenants": {"user.whale": "own"}}"#, r#""main""#);
    let everything = known("main", LimiterBecause::Only);
    assert_eq!(limiters(&policy, None, "bob"), [known("main", LimiterBecause::Default), everything.clone()]);
    let tenant = LimiterBecause::Tenant { by_network: false };
    assert_eq!(limiters(&policy, None, "whale"), [known("own", tenant), everything.clone()]);
    let policy = routed(r#"{"default": "main", "tiers": {"free": "own"}}"#, r#"{"default": "main"}"#);
    assert_eq!(limiters(&policy, None, "bob"), [known("own", LimiterBecause::Tier), everything]);
    let policy = routed(r#""main""#, r#"{"default": "main", "tenants": {"ip.10.0.0.0/8": "own"}}"#).replace(
        r#"{"query": {"name": "api_key", "secret": true, "trusted": true, "doubled": "refuse"}}"#,
        r#"{"client_ip": {"from": "x_forwarded_for", "as": "ip", "peer_appended": true, "trusted_hops": 1}}"#,
    );
    let subject = Subject::from_host(policy.as_bytes(), &|_| None).expect("a good policy");
    let request = described("GET /v1/x", &["x-user-id: bob", "x-forwarded-for: 10.1.2.3, 192.0.2.1"]);
    let RuleResult::Takes { buckets, .. } = &subject.explain(&request).rules[1].result else { panic!("no bucket") };
    assert_eq!(buckets[0].limiter, known("own", LimiterBecause::Tenant { by_network: true }));
}

#[wasm_bindgen_test(unsupported = test)]
fn a_limiter_is_unknown_where_it_depends_on_a_hash_whose_key_is_unknown() {
    // HMAC-SHA256 of sesame by the key `key`, its first half, and another one.
    let (sesame, other) = ("query.~cd91ff0322095dc25c0f7eda2be6d55e", "query.~00000000000000000000000000000000");
    let unknown = || Some(LimiterSeen::Unknown(vec!["main".to_owned(), "own".to_owned()]));
    let of_key = |policy: &str, hash_key| limiters(policy, hash_key, "bob").remove(1);
    let tenant = LimiterBecause::Tenant { by_network: false };
    let by_tenant =
        |named: &str| routed(r#""main""#, &format!(r#"{{"default": "main", "tenants": {{"{named}": "own"}}}}"#));
    assert_eq!(of_key(&by_tenant(sesame), Some("key")), known("own", tenant));
    assert_eq!(of_key(&by_tenant(other), Some("key")), known("main", LimiterBecause::Default));
    assert_eq!(of_key(&by_tenant(sesame), None), unknown());
    assert_eq!(of_key(&by_tenant(other), None), unknown());
    // Nobody else's limiter depends on it, nor one that is the same in any case.
    assert_eq!(limiters(&by_tenant(sesame), None, "bob")[0], known("main", LimiterBecause::Only));
    let same = by_tenant(sesame).replace(r#"": "own"}"#, r#"": "main"}"#);
    assert_eq!(of_key(&same, None), known("main", LimiterBecause::Default));
    let of_another = by_tenant("none.anonymous");
    assert_eq!(of_key(&of_another, None), known("main", LimiterBecause::Default));

    // By its tier likewise, and by its overrides, which are no tier.
    let by_tier = routed(r#""main""#, r#"{"default": "main", "tiers": {"free": "own"}}"#);
    let limits = r#""mode": "exact", "limits": "5/s", "on_error": "deny""#;
    let with = |words: &str| {
        let tiers = r#""mode": "exact", "limits": {"free": "5/s", "gold": "50/s"}, "on_error": "deny""#;
        by_tier.replace(limits, &format!("{tiers}, {words}"))
    };
    let named = with(&format!(r#""tier": {{"default": "free", "tenants": {{"{sesame}": "gold"}}}}"#));
    assert_eq!(of_key(&named, None), unknown());
    assert_eq!(of_key(&named, Some("key")), known("main", LimiterBecause::Default));
    let overridden =
        |limit: &str| with(&format!(r#""tier": {{"default": "free"}}, "overrides": {{"{sesame}": "{limit}"}}"#));
    assert_eq!(of_key(&overridden("7/s"), None), unknown());
    // Such a tenant would have no bucket.
    assert_eq!(of_key(&overridden("deny"), None), known("own", LimiterBecause::Tier));
}

#[wasm_bindgen_test(unsupported = test)]
fn what_describes_no_request_is_refused_and_what_does_is_read_as_proxies_read_it() {
    for line in ["", "GET", "  GET  "] {
        assert_eq!(Described::new(line), Err(Undescribed::RequestLine), "{line:?}");
    }
    let value = |line: &str, name: &str| {
        let described = Described::new(line).expect("a request line");
        described.value(name).map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let text = |text: &str| Some(text.to_owned());
    assert_eq!(value("GET https://a.b:8443?x", ":authority"), text("a.b:8443"));
    assert_eq!(value("GET https://a.b:8443?x", ":path"), text("/?x"));
    assert_eq!(value("CONNECT a.b:443", ":authority"), text("a.b:443"));
    assert_eq!(value("CONNECT a.b:443", ":path"), None);

    let mut described = Described::default();
    assert_eq!(described.header("Host: a.b"), Ok(":authority".to_owned()));
    assert_eq!(described.header("no value"), Err(Undescribed::Header));
    assert_eq!(described.property(r#"a."b.c"=d=e"#), Ok(vec!["a".to_owned(), "b.c".to_owned()]));
    assert_eq!(described.property(r#"["a]=","b"]=c"#), Ok(vec!["a]=".to_owned(), "b".to_owned()]));
    for line in ["a..b=c", "a", "[a]=b", r#"a."b=c"#] {
        assert_eq!(described.property(line), Err(Undescribed::Property), "{line}");
    }
    for (address, wanted) in [
        ("203.0.113.9", Ok(())),
        ("203.0.113.9:50000", Ok(())),
        ("[2001:db8::1]", Ok(())),
        ("2001:db8::1", Ok(())),
        ("localhost", Err(Undescribed::Address)),
        ("203.0.113.9:", Err(Undescribed::Address)),
    ] {
        assert_eq!(described.address(address), wanted, "{address}");
    }
}

#[wasm_bindgen_test(unsupported = test)]
fn a_policy_that_is_none_is_refused_with_its_problems() {
    let told = |text: &str| -> Vec<String> {
        let problems = Subject::from_host(text.as_bytes(), &|_| None).expect_err("no policy");
        problems.iter().map(|problem| problem.for_people().to_string()).collect()
    };
    assert_eq!(told("{"), ["policy: is no JSON; look at line 1, column 1"]);
    let no_object = told("[]");
    assert_eq!(no_object.len(), 1);
    assert!(no_object[0].starts_with("policy: a list cannot stand here"), "{no_object:?}");
}
