//! `weir top`, of proxies that say what is made up here, and of real ones.

use std::io::Write;
use std::process::{Command, Stdio};

use weir::policy::Tree;
use weir_stack::{
    Client, Envoy, EnvoyOptions, Listeners, Peer, PeerOptions, Redis, RedisOptions, Scratch, Webdis, WebdisOptions,
};

use crate::{compare, folder, get, items, module, text, told, wait_for, weir};

/// The same of proxies that say what [`answering`] has them say: `@` stands for their address, and for that of one that
/// says nothing, `@SILENT`.
pub const TOPS: &[(&str, &str)] = &[
    ("top", "WEIR_DEBUG_SECRET=sesame weir top --once http://@/.weir/top http://@/second"),
    ("top_as_json", "WEIR_DEBUG_SECRET=sesame weir top --format json http://@/.weir/top http://@/second"),
    ("top_full", "weir top --secret-file sesame.txt --lines 3 http://@/full http://@/more http://@/empty"),
    ("top_full_as_json", "weir top --secret-file - --format json --lines 2 http://@/full http://@/more <sesame.txt"),
    (
        "top_of_a_rule",
        "http_proxy=http://127.0.0.1:9 ALL_PROXY=http://127.0.0.1:9 WEIR_DEBUG_SECRET=sesame weir top --rule everybody http://@/.weir/top http://@/second",
    ),
    ("top_of_no_rule", "WEIR_DEBUG_SECRET=sesame weir top --rule per-usr http://@/.weir/top http://@/second"),
    ("top_control_characters", "WEIR_DEBUG_SECRET=sesame weir top http://@/odd http://@/odd-redirect"),
    ("top_control_characters_as_json", "WEIR_DEBUG_SECRET=sesame weir top --format json http://@/odd"),
    (
        "top_failures",
        "WEIR_DEBUG_SECRET=sesame weir top http://@SILENT/top http://@/.weir/top http://@/moved http://@/none \
         http://@/limited http://@/page http://@/json http://127.0.0.1:9/top",
    ),
    ("top_failures_alone", "WEIR_DEBUG_SECRET=sesame weir top --once --format json http://@SILENT/top http://@/none"),
];

/// A counter as a proxy tells it.
fn counter(tenant: &str, count: u64, error: u64) -> String {
    format!(r#"{{"tenant":"{tenant}","count":{count},"error":{error}}}"#)
}

fn list(milliseconds: u64, counters: &[String]) -> String {
    format!(r#"{{"milliseconds":{milliseconds},"tenants":[{}]}}"#, counters.join(","))
}

fn rule(name: &str, refused: &str, busiest: &str) -> String {
    format!(r#"{{"rule":"{name}","refused":{refused},"busiest":{busiest}}}"#)
}

fn rules(rules: &[String]) -> String {
    format!(r#"{{"rules":[{}]}}"#, rules.join(","))
}

/// A listener whose paths answer what is made up here.
fn answering() -> String {
    let (nobody, ok) = (list(0, &[]), |body: String| (200, "application/json", body));
    let first = rules(&[
        rule(
            "per-user",
            &list(62_000, &[counter("user.bob", 310, 0)]),
            &list(62_000, &[counter("user.bob", 930, 0), counter("user.acme", 71, 0)]),
        ),
        rule("everybody", &nobody, &list(62_000, &[counter("constant.all", 1001, 0)])),
    ]);
    let second = rules(&[rule(
        "per-user",
        &list(30_000, &[counter("user.eve", 45, 0)]),
        &list(30_000, &[counter("user.bob", 300, 0), counter("user.eve", 60, 9)]),
    )]);
    // 64 counters, of which the least has 37: whoever is not there may have come as often.
    let counters: Vec<String> = (0..64).map(|number| counter(&format!("user.t{number:02}"), 100 - number, 2)).collect();
    let full = rules(&[rule("per-user", &nobody, &list(4000, &counters))]);
    let more =
        rules(&[rule("per-user", &nobody, &list(1000, &[counter("user.new", 20, 0), counter("user.t63", 20, 0)]))]);
    let odd = r"user.\u001b[2J\u009b31m\n";
    let odd = rules(&[rule(odd, &nobody, &list(1000, &[counter(odd, 1, 0)]))]);
    let answers = [
        ("/.weir/top", ok(first)),
        ("/second", ok(second)),
        ("/full", ok(full)),
        ("/more", ok(more)),
        ("/empty", ok(rules(&[rule("per-user", &nobody, &nobody)]))),
        ("/odd", ok(odd)),
        ("/none", (404, "text/html", "<h1>Not found</h1>".to_owned())),
        ("/limited", (429, "application/json", r#"{"error":"rate_limited"}"#.to_owned())),
        ("/page", (200, "text/html", "<h1>Welcome</h1>".to_owned())),
        ("/json", ok(r#"{"rules":[{"rule":"per-user","refused":[],"busiest":[]}]}"#.to_owned())),
    ];
    let answers = answers.map(|(path, (status, kind, body))| {
        serde_json::json!({
            "match": {"path": path, "headers": [{"name": "x-weir-debug", "string_match": {"exact": "sesame"}}]},
            "direct_response": {"status": status, "body": {"inline_string": body}},
            "response_headers_to_add": [{
                "header": {"key": "content-type", "value": kind}, "append_action": "OVERWRITE_IF_EXISTS_OR_ADD",
            }],
        })
    });
    let moved = [("/moved", "/.weir/top"), ("/odd-redirect", "/\u{9b}31m")].map(
        |(path, to)| serde_json::json!({"match": {"path": path}, "redirect": {"path_redirect": to, "port_redirect": 8443}}),
    );
    listener(&answers.iter().chain(&moved).collect::<Vec<_>>())
}

/// A listener with these routes.
fn listener(routes: &[&serde_json::Value]) -> String {
    let listener = serde_json::json!({"resources": [{
        "@type": "type.googleapis.com/envoy.config.listener.v3.Listener",
        "name": "answering",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": "PORT"}},
        "filter_chains": [{"filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3\
                          .HttpConnectionManager",
                "stat_prefix": "answering",
                "http_filters": [{
                    "name": "envoy.filters.http.router",
                    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
                }],
                "route_config": {"virtual_hosts": [{
                    "name": "all", "domains": ["*"], "routes": routes,
                }]},
            },
        }]}],
    }]});
    listener.to_string().replace("\"PORT\"", "@PORT@")
}

#[test]
fn top_merges_what_proxies_tell_and_says_why_some_do_not() {
    let scratch = Scratch::new().unwrap();
    let (module, listeners) = (module(), answering());
    let options = EnvoyOptions::new(&module, "", 9, 9);
    let envoy = Envoy::start(&scratch, EnvoyOptions { listeners: Listeners::File(&listeners), ..options }).unwrap();
    // Who connects waits for ever.
    let silent = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    let silent = silent.local_addr().map(|address| (silent, address.to_string())).expect("its address");
    let address = format!("127.0.0.1:{}", envoy.port());
    let mut wrong = Vec::new();
    for (name, line) in TOPS {
        let told = told(&line.replace("@SILENT", &silent.1).replace('@', &address), &folder());
        let told = told.replace(&silent.1, "@SILENT").replace(&address, "@").replace("127.0.0.1:8443", "@");
        wrong.extend(compare(name, &told).err());
        // And what is shown first is shown in docs/tool.md.
        if *name == "top" {
            let (_, told) = told.split_once('\n').expect("the command");
            let (told, _) = told.split_once("--- exit").expect("the end");
            assert!(include_str!("../../docs/tool.md").contains(&format!("\n{told}```\n")), "{told}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Who came, or was refused, by what two proxies tell together, and how often.
fn counts(told: &Tree, kind: &str) -> Vec<(String, i64)> {
    assert_eq!(*get(told, "answered"), Tree::Int(2), "{told:?}");
    let ranks = items(get(told, "rules")).iter().flat_map(|rule| items(get(rule, kind)));
    let count = |rank| match (get(rank, "tenant"), get(rank, "count"), get(rank, "error")) {
        (Tree::Text(tenant), Tree::Int(count), Tree::Int(0)) => (tenant.clone(), *count),
        _ => panic!("{rank:?}"),
    };
    ranks.map(count).collect()
}

/// What people are shown of it, whatever the rates are.
fn assert_shown(told: &str) {
    let is_rate = |word: &str| word.split_once('.').is_some_and(|(_, tenth)| tenth.len() == 1);
    let mut lines: Vec<String> = told
        .lines()
        .map(|line| match line.trim_start().split_once("  ") {
            Some((rate, tenant)) if is_rate(rate) => format!("RATE {tenant}"),
            _ => line.to_owned(),
        })
        .collect();
    lines[4..6].sort();
    lines[7..].sort();
    assert_eq!(
        lines,
        [
            "2 of 2 proxies, requests per second in the last minutes",
            "",
            "rule per-user",
            "  refused",
            "RATE user.bob",
            "RATE user.eve",
            "  busiest",
            "RATE user.acme",
            "RATE user.bob",
            "RATE user.eve"
        ],
        "{told}"
    );
}

#[test]
fn top_shows_who_comes_to_two_real_envoys() {
    let scratch = Scratch::new().unwrap();
    let policy = r#"{"version": 1, "limiters": {"main": {"transport": "webdis", "cluster": "webdis", "timeout": "2s"}},
        "rules": [{"name": "per-user", "key": [{"header": {"name": "x-user-id", "as": "user", "trusted": true}}],
            "mode": "exact", "limits": "3/d", "on_error": "deny"}],
        "observe": {"secret_env": "WEIR_DEBUG_SECRET", "debug_header": "x-who", "top_path": "/.weir/top"}}"#;
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default()).unwrap();
    let peer = Peer::start(&scratch, PeerOptions::default()).unwrap();
    let module = module();
    let env = [("WEIR_DEBUG_SECRET", "open sesame")];
    let start = || {
        let options = EnvoyOptions::new(&module, policy, peer.upstream_port(), webdis.port());
        Envoy::start(&scratch, EnvoyOptions { env: &env, ..options }).unwrap()
    };
    let mut envoys = [start(), start()];
    // Of 3 tokens a day over both: bob has 6 refused, eve 3, acme none.
    let requests = [(0, "bob", 7), (1, "bob", 2), (1, "eve", 6), (0, "acme", 1)];
    for (envoy, user, count) in requests {
        let mut client = Client::new(envoys[envoy].port());
        (0..count).for_each(|_| drop(client.get("/", &[("x-user-id", user.as_bytes())]).unwrap()));
    }
    let urls = envoys.each_ref().map(|envoy| format!("http://127.0.0.1:{}/.weir/top", envoy.port()));
    let top = |more: &[&str], env: &[(&str, &str)], stdin: &[u8]| {
        weir(&folder(), &[&["top", &urls[0], &urls[1]], more].concat(), env, stdin)
    };
    // Rates, by which they are in order, depend on when each worker has told the others.
    let sorted = |kind| {
        let output = top(&["--header", "X-Who", "--format", "json", "--secret-file", "-"], &[], b"open sesame\n");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let mut counts = counts(&Tree::from_json(&output.stdout).expect("JSON"), kind);
        counts.sort();
        counts
    };
    let wanted = |counts: &[(&str, i64)]| -> Vec<(String, i64)> {
        counts.iter().map(|(tenant, count)| ((*tenant).to_owned(), *count)).collect()
    };
    let busiest = wanted(&[("user.acme", 1), ("user.bob", 9), ("user.eve", 6)]);
    assert!(wait_for(|| sorted("busiest") == busiest), "{:?}", sorted("busiest"));
    let refused = wanted(&[("user.bob", 6), ("user.eve", 3)]);
    assert!(wait_for(|| sorted("refused") == refused), "{:?}", sorted("refused"));

    let known = [("WEIR_DEBUG_SECRET", "open sesame")];
    let output = top(&["--once", "--header", "x-who"], &known, b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_shown(&text(&output.stdout));

    // A second listener with the same policy tells the same.
    let (first, second) = (envoys[0].port(), envoys[0].reserve_port().unwrap());
    envoys[0].push_policies(&[(first, policy), (second, policy)]).unwrap();
    let url = format!("http://127.0.0.1:{second}/.weir/top");
    let args = ["top", "--once", "--header", "x-who", "--format", "json", &url];
    let told = Tree::from_json(&weir(&folder(), &args, &known, b"").stdout).expect("JSON");
    let [rule] = items(get(&told, "rules")) else { panic!("{told:?}") };
    let [rank] = items(get(rule, "refused")) else { panic!("{told:?}") };
    assert_eq!(*get(rank, "tenant"), Tree::Text("user.bob".to_owned()));

    // Not so who has another secret, or sends it in another header.
    for (header, secret) in [("x-who", "open"), ("x-weir-debug", "open sesame")] {
        let output = top(&["--header", header], &[("WEIR_DEBUG_SECRET", secret)], b"");
        assert_eq!(output.status.code(), Some(2));
        let said = text(&output.stderr);
        assert!(said.contains("answers as to anybody (200, text/plain); see whether the path, the secret"), "{said}");
        assert!(!said.contains("sesame"), "{said}");
    }
    for envoy in &envoys {
        assert_eq!(envoy.errors(), Vec::<String>::new());
    }
}

/// A child that ends when the test does. Its terminal goes with it, and what runs there is told so.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn on_a_terminal_top_draws_in_place_and_gives_the_cursor_back() {
    let scratch = Scratch::new().unwrap();
    let (module, listeners) = (module(), answering());
    let options = EnvoyOptions::new(&module, "", 9, 9);
    let envoy = Envoy::start(&scratch, EnvoyOptions { listeners: Listeners::File(&listeners), ..options }).unwrap();
    // util-linux's script gives it a terminal, which neither echoes Ctrl-C nor then forgets what was written.
    let line = format!(
        "stty rows 9 cols 80 -echo noflsh; exec {} top --every 100ms http://127.0.0.1:{}/.weir/top",
        env!("CARGO_BIN_EXE_weir"),
        envoy.port()
    );
    let script = Command::new("script")
        .args(["--quiet", "--return", "--flush", "--command", &line, "/dev/null"])
        .env_clear()
        .envs([("PATH", "/usr/bin:/bin"), ("WEIR_DEBUG_SECRET", "sesame"), ("TERM", "xterm"), ("NO_COLOR", "1")])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("script");
    let mut script = Ended(script);
    let mut out = script.0.stdout.take().expect("a pipe");
    let mut drawn = Vec::new();
    let frames = |drawn: &[u8]| drawn.windows(5).filter(|bytes| *bytes == b"\x1b[K\r\n").count() / 8;
    while frames(&drawn) < 3 {
        let mut bytes = [0; 4096];
        let count = std::io::Read::read(&mut out, &mut bytes).expect("a frame");
        assert!(count > 0, "{:?}", String::from_utf8_lossy(&drawn));
        drawn.extend(&bytes[..count]);
    }
    // Ctrl-C
    script.0.stdin.as_mut().expect("a pipe").write_all(b"\x03").expect("it is there");
    std::io::Read::read_to_end(&mut out, &mut drawn).expect("its end");
    assert_eq!(script.0.wait().expect("it ends").code(), Some(0));
    let drawn = text(&drawn);
    let frame = "\x1b[?25l\x1b[?7l@\x1b[H\
        1 of 1 proxy, requests per second in the last minutes\x1b[K\r\n\
        \x1b[K\r\n\
        rule per-user\x1b[K\r\n  \
          refused\x1b[K\r\n       \
               5.0  user.bob\x1b[K\r\n  \
          busiest\x1b[K\r\n      \
              15.0  user.bob\x1b[K\r\n\
        ... more than the window holds: see --rule and --lines\x1b[K\r\n\
        \x1b[J\x1b[?7h";
    let (first, next) = (frame.replace('@', "\x1b[2J"), frame.replace('@', ""));
    let rest = drawn.strip_prefix(&first).unwrap_or_else(|| panic!("{drawn:?}"));
    let (frames, end) = rest.rsplit_once(&next).unwrap_or_else(|| panic!("{drawn:?}"));
    assert_eq!(frames.replace(&next, ""), "", "{drawn:?}");
    assert_eq!(end, "\x1b[?7h\x1b[?25h", "{drawn:?}");
}
