//! `weir render`, beside check and a real Envoy.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use weir::policy::Tree;
use weir_stack::{
    Bridge, BridgeOptions, Client, Envoy, EnvoyOptions, Listeners, Peer, PeerOptions, Redis, RedisOptions, Response,
    Scratch, Webdis, WebdisOptions,
};

use crate::{Folder, ROOT, folder, get, items, module, policies, text, weir};

#[test]
fn what_render_writes_is_what_check_accepts_and_the_policy_is_the_same() {
    for file in policies("good", &["yaml"]).iter().chain([&folder().join("who.yaml")]) {
        let name = file.to_str().expect("a plain name");
        let tree: Tree = serde_saphyr::from_str(&fs::read_to_string(file).expect("a policy")).expect("YAML");
        // Where there are several limiters, each has its place.
        let places: Vec<String> = match get(&tree, "limiters") {
            Tree::Map(limiters) if limiters.len() > 1 => {
                limiters.iter().map(|(name, _)| format!("--limiter={name}=127.0.0.1:7379")).collect()
            }
            _ => Vec::new(),
        };
        let envoy: Vec<&str> = ["--host", "envoy"].into_iter().chain(places.iter().map(String::as_str)).collect();
        for (args, way) in [
            (envoy.as_slice(), &["resources", "0", "typed_config", "config", "configuration", "value"][..]),
            (&["--host", "istio", "--url", "oci://registry.example.com/weir:1"], &["spec", "pluginConfig"]),
        ] {
            let rendered = weir(Path::new(ROOT), &[&["render", name], args].concat(), &[], b"");
            assert_eq!(rendered.status.code(), Some(0), "{}", text(&rendered.stderr));
            let checked = weir(Path::new(ROOT), &["check", "-"], &[], &rendered.stdout);
            let (said, shown) = (text(&checked.stdout), text(&rendered.stdout));
            assert_eq!(checked.status.code(), Some(0), "{said}{shown}");
            let whole: Tree = serde_saphyr::from_str(&shown).expect("YAML");
            let policy = way.iter().fold(&whole, |tree, word| match word.parse::<usize>() {
                Ok(index) => &items(tree)[index],
                Err(_) => get(tree, word),
            });
            // JSON in a text, where Envoy's YAML would make texts of numbers.
            let policy = match policy {
                Tree::Text(json) => &Tree::from_json(json.as_bytes()).expect("JSON"),
                policy => policy,
            };
            assert_eq!(*policy, tree, "{name}");
        }
    }
}

/// What explain says of a request is what became of it: the buckets, and the answers with a full and an empty one.
fn assert_explained(policy: &str, keys: &[String], answers: [&Response; 2]) {
    let args = ["explain", "-", "--request", "GET /", "-H", "x-user-id: ac me", "--format", "json"];
    let explained = Tree::from_json(&weir(&folder(), &args, &[], policy.as_bytes()).stdout).expect("JSON");
    let [rule] = items(get(&explained, "rules")) else { panic!("{explained:?}") };
    let [bucket] = items(get(rule, "buckets")) else { panic!("{explained:?}") };
    assert_eq!(keys.iter().cloned().map(Tree::Text).collect::<Vec<_>>(), [get(bucket, "key").clone()]);
    let [full, empty] = items(get(&explained, "answers")) else { panic!("{explained:?}") };
    for (told, answer) in [(full, answers[0]), (empty, answers[1])] {
        let Tree::Map(headers) = get(told, "headers") else { panic!("{told:?}") };
        for (name, value) in headers {
            let sent = answer.header(name).unwrap_or_else(|| panic!("no {name}"));
            // Moments and waits differ by how long this test takes.
            if name != "x-ratelimit-reset" && name != "retry-after" {
                assert_eq!(*value, Tree::Text(sent.to_owned()), "{name}");
            }
        }
    }
    assert_eq!(*get(empty, "status"), Tree::Int(429));
}

const RULES: &str = "classes: [{class: two, match: {query: {v: {exact: '2'}}}, exempt: true}]
rules:
  - name: per-user
    key: [{header: {name: x-user-id, as: user, trusted: true}}]
    lease: {lend: 0.25}
    limits: 2/d
    on_error: deny
";

#[test]
fn a_real_envoy_runs_what_render_writes() {
    let scratch = Scratch::new().unwrap();
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default()).unwrap();
    assert_runs(&scratch, &redis, "webdis", webdis.port());
    let tool = Path::new(env!("CARGO_BIN_EXE_weir"));
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let bridge = Bridge::start(&scratch, BridgeOptions::new(tool, &redis)).unwrap();
    assert_runs(&scratch, &redis, "bridge", bridge.port());
    assert!(bridge.metric("weir_bridge_parts_total") >= Some(1.0));
}

fn assert_runs(scratch: &Scratch, redis: &Redis, transport: &str, port: u16) {
    let policy = &format!(
        "version: 1
limiters: {{main: {{transport: {transport}, cluster: {transport}, timeout: 2s}}}}
{RULES}"
    );
    let peer = Peer::start(scratch, PeerOptions::default()).unwrap();
    let limiter = format!("127.0.0.1:{port}");
    let files = Folder::new(&format!("filter-{transport}"));
    let filter_file = files.0.join("filter.yaml");
    let filter = filter_file.display().to_string();
    let args = ["render", "-", "--host", "envoy", "--module", "@MODULE@", "--filter", &filter, "--limiter", &limiter];
    let rendered = weir(&folder(), &args, &[], policy.as_bytes());
    assert_eq!(rendered.status.code(), Some(0), "{}", text(&rendered.stderr));
    let rendered = text(&rendered.stdout);
    let (filters, clusters) = rendered.split_once("# Into static_resources.clusters").expect("both");
    let (filters, resources) = filters.split_once("# Into the file").expect("the file");
    let (_, filters) = filters.split_once("http_filters:\n").expect("the filter");
    let (_, cluster) = clusters.split_once("clusters:\n").expect("the cluster");
    let (_, resources) = resources.split_once('\n').expect("a line of words");
    fs::write(&filter_file, resources.replace("@MODULE@", &module().display().to_string())).unwrap();

    // The filter in place of the one of envoy/listener.yaml, whose list is as far in as this.
    let listener = include_str!("../../envoy/listener.yaml");
    let (before, rest) = listener.split_once("                - name: weir\n").expect("its filter");
    let (_, after) = rest.split_once("                # The router is last").expect("its router");
    let indented: String = filters.lines().map(|line| format!("              {line}\n")).collect();
    let listeners = format!("{before}{indented}                # The router is last{after}");
    let module = module();
    let options = EnvoyOptions::new(&module, "", peer.upstream_port(), port);
    let options = EnvoyOptions { bridge_port: port, ..options };
    let envoy = Envoy::start(scratch, EnvoyOptions { listeners: Listeners::File(&listeners), ..options }).unwrap();
    let mut client = Client::new(envoy.port());
    let answers = ["/", "/?v=2", "/", "/", "/?v=2"].map(|path| client.get(path, &[("x-user-id", b"ac me")]).unwrap());
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 200, 429, 200]);
    assert_eq!(envoy.errors(), Vec::<String>::new());

    let mut operator = redis.operator().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut operator).unwrap();
    assert_explained(policy, &keys, [&answers[0], &answers[3]]);

    // And the cluster in a bootstrap of its own, which Envoy reads without running it.
    let folder = Folder::new(&format!("bootstrap-{transport}"));
    let bootstrap = folder.0.join("bootstrap.yaml");
    fs::write(&bootstrap, format!("static_resources:\n  clusters:\n{}", indent(cluster))).unwrap();
    let envoy =
        std::env::var_os("WEIR_ENVOY").map_or_else(|| Path::new(ROOT).join(".tools/envoy/bin/envoy"), PathBuf::from);
    let validated = Command::new(envoy).args(["--mode", "validate", "-c"]).arg(&bootstrap).output().expect("an Envoy");
    assert!(validated.status.success(), "{}", text(&validated.stderr));
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}
