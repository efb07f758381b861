//! The tool as its users run it: what it prints, word for word, and its exit codes.
//!
//! Each file tests/cli/NAME.txt is one command and what comes of it. `WEIR_BLESS=1 cargo test --features cli --test cli`
//! writes them anew; read the difference.
#![allow(clippy::disallowed_methods, reason = "the bans are for the core; this is outside")]

use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use weir::policy::{Environment, Policy, Tree};
use weir::request::Request as Asked;
use weir::rules::{Ruling, judge};
use weir_stack::{
    Client, Envoy, EnvoyOptions, Listeners, Peer, PeerOptions, Redis, RedisOptions, Scratch, Webdis, WebdisOptions,
    with_filter,
};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

const SECRET: (&str, &str) = ("WEIR_HASH_SECRET", "hush");

/// What `weir` does, with nothing of this process's environment that it looks at.
fn weir(folder: &Path, args: &[&str], env: &[(&str, &str)], stdin: &[u8]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(args).current_dir(folder).env_clear().envs(env.iter().copied());
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the tool starts");
    // It may end without having read anything.
    let _ = child.stdin.take().expect("a pipe").write_all(stdin);
    child.wait_with_output().expect("it ends")
}

fn folder() -> PathBuf {
    Path::new(ROOT).join("tests/cli")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("UTF-8")
}

/// A command line, run by a shell in a folder, and all that came of it.
fn told(line: &str, folder: &Path) -> String {
    let tool = Path::new(env!("CARGO_BIN_EXE_weir")).parent().expect("its folder");
    let output = Command::new("sh")
        .args(["-c", line])
        .current_dir(folder)
        .env_clear()
        .env("PATH", format!("{}:/usr/bin:/bin", tool.display()))
        .output()
        .expect("a shell");
    let mut told = text(&output.stdout);
    if !output.stderr.is_empty() {
        told += &format!("--- stderr\n{}", text(&output.stderr));
    }
    format!("$ {line}\n{told}--- exit {}\n", output.status.code().expect("it ends by itself"))
}

/// What is run in tests/cli: the name of the file that holds what comes of it, and the command line.
const RUNS: &[(&str, &str)] = &[
    ("check_errors", "weir check errors.yaml"),
    ("check_errors_as_json", "weir check --format json errors.yaml"),
    ("check_warnings", "weir check warnings.yaml"),
    ("check_warnings_denied", "weir check --deny-warnings edge.yaml"),
    ("check_envoy", "weir check envoy.yaml"),
    ("check_envoy_as_json", "weir check --format json edge.yaml"),
    ("check_envoys_yaml", "weir check envoys_yaml.yaml"),
    ("check_ecds", "weir check ecds.yaml"),
    ("check_counted_twice", "weir check twice.yaml"),
    ("check_discovered_elsewhere", "weir check discovering.yaml"),
    ("check_istio", "weir check istio.yaml"),
    ("check_several_documents", "weir check documents.yaml"),
    ("check_merge_keys", "weir check merged.yaml"),
    ("check_json", "weir check policy.json"),
    ("check_broken_files", "weir check broken.json broken.yaml service.yaml documents.yaml"),
    ("check_absent_file", "weir check errors.yaml absent.yaml"),
    ("check_no_file", "weir check"),
    ("check_environment", "weir check --check-environment who.yaml"),
    ("check_environment_set", "WEIR_HASH_SECRET=hush weir check --check-environment who.yaml"),
    ("check_stdin", "weir check - <merged.yaml"),
    ("check_fingerprints", "weir check --fingerprints who.yaml edge.yaml documents.yaml"),
    ("check_fingerprints_as_json", "weir check --fingerprints --format json deny.yaml"),
    ("check_observe", "weir check observe.yaml"),
    ("check_tokens", "weir check tokens.yaml"),
    ("check_limiters", "weir check limiters.yaml limiters_envoy.yaml"),
    (
        "explain_limiter_of_a_tier",
        "weir explain limiters.yaml --request 'GET /' -H 'x-user-id: acme' -H 'x-plan: gold' --peer 203.0.113.9",
    ),
    (
        "explain_limiter_of_a_tenant_as_json",
        "weir explain limiters.yaml --request 'GET /' -H 'x-user-id: whale' --peer 203.0.113.9 --format json",
    ),
    (
        "render_limiters",
        "weir render limiters.yaml --host envoy --limiter main=10.0.0.1:7379 --limiter big=big.internal:7379 \
         --limiter own=10.0.0.3:7379 --limiter idle=10.0.0.1:7379",
    ),
    (
        "render_limiters_istio",
        "weir render limiters.yaml --host istio --url oci://a/weir:1 --limiter big=big.infra.svc.cluster.local:7379",
    ),
    ("render_limiters_without_names", "weir render limiters.yaml --host envoy --limiter 10.0.0.1:7379"),
    ("render_limiters_without_one", "weir render limiters.yaml --host envoy --limiter main=10.0.0.1:7379"),
    ("render_limiters_unknown", "weir render limiters.yaml --host istio --url oci://a/b:1 --limiter bgi=a:7379"),
    (
        "render_limiters_of_one_cluster",
        "weir render limiters.yaml --host envoy --limiter main=10.0.0.1:7379 --limiter big=big.internal:7379 \
         --limiter own=10.0.0.3:7379 --limiter idle=10.0.0.9:7379",
    ),
    (
        "explain",
        "WEIR_HASH_SECRET=hush weir explain who.yaml --request 'POST /V1//acme/x' -H @secret-headers.txt \
         --peer 203.0.113.9",
    ),
    ("explain_without_the_hash_key", "weir explain who.yaml --request 'POST /V1//acme/x' -H @secret-headers.txt"),
    (
        "explain_secrets_from_files",
        "weir explain who.yaml --request 'CONNECT shop.example.com:443' --secret-file secret.txt -H @- <bearer.txt",
    ),
    (
        "explain_as_json",
        "WEIR_HASH_SECRET=hush weir explain who.yaml --request 'GET /v1/7' --peer '[2001:db8::7]:443' --format json \
         --property 'metadata.filter_metadata.\"envoy.filters.http.jwt_authn\".payload.sub=acme'",
    ),
    (
        "explain_grpc",
        "WEIR_HASH_SECRET=hush weir explain who.yaml --request 'POST /shop.v1.Cart/Get' -H 'x-org: a,b' \
         -H 'content-type: application/grpc' --property '[\"plan\"]=gold' -H 'x-user-id: me' --peer 203.0.113.9",
    ),
    (
        "explain_host_and_query",
        "WEIR_HASH_SECRET=hush weir explain who.yaml --request 'GET https://a.beta.example.com/x?v=2' \
         --property '[\"metadata\",\"filter_metadata\",\"envoy.filters.http.jwt_authn\",\"payload\",\"sub\"]=acme ltd' \
         --property plan=platinum",
    ),
    (
        "explain_unlimited",
        "WEIR_HASH_SECRET=hush weir explain who.yaml --request 'PUT /v1/x' -H 'x-write: ' \
         --property 'metadata.filter_metadata.\"envoy.filters.http.jwt_authn\".payload.sub=acme'",
    ),
    ("explain_exempt", "weir explain who.yaml --request 'GET /HEALTHZ?x'"),
    ("explain_malformed", "weir explain who.yaml --request 'PUT /%zz' -H 'x-write: 1'"),
    ("explain_doubled", "weir explain who.yaml --request @doubled-request.txt"),
    ("explain_forbidden", "weir explain deny.yaml --request 'GET /' -H 'x-user-id: mallory'"),
    ("check_networks", "weir check networks.yaml"),
    ("explain_network", "weir explain networks.yaml --request 'GET /' --peer 10.2.3.4"),
    ("explain_banned_network", "weir explain networks.yaml --request 'GET /' --peer 203.0.113.9"),
    (
        "explain_a_number",
        "weir explain claims.yaml --request 'GET /' --property claims.id=12345 --property claims.admin=true",
    ),
    ("explain_a_banned_number", "weir explain claims.yaml --request 'GET /' --property claims.id=666"),
    ("explain_no_number", "weir explain claims.yaml --request 'GET /' --property claims.id=acme"),
    ("explain_nobody", "weir explain deny.yaml --request 'GET /'"),
    ("explain_untold", "weir explain untold.yaml --request 'GET /' -H 'x-user-id: a'"),
    ("explain_one_of_several", "weir explain documents.yaml --policy 1 --request 'GET /'"),
    ("explain_in_an_envoy", "weir explain edge.yaml --request 'GET /' --peer 203.0.113.9"),
    ("explain_which_one", "weir explain envoy.yaml --request 'GET /'"),
    ("explain_a_policy_with_errors", "weir explain errors.yaml --request 'GET /'"),
    ("explain_an_open_secret", "weir explain who.yaml --request 'GET /' -H 'X-API-Key: sesame'"),
    ("explain_open_credentials", "weir explain who.yaml --request 'GET /' -H 'authorization: Bearer sesame'"),
    ("explain_an_open_query", "weir explain who.yaml --request 'GET /?api_key=sesame'"),
    ("explain_stdin_twice", "weir explain - --request 'GET /' -H @- <who.yaml"),
    ("explain_no_request", "weir explain deny.yaml --request GET"),
    ("explain_no_header", "weir explain deny.yaml --request 'GET /' -H sesame"),
    ("explain_no_property", "weir explain deny.yaml --request 'GET /' --property a..b=c"),
    ("explain_no_peer", "weir explain deny.yaml --request 'GET /' --peer localhost"),
    ("render_envoy", "weir render who.yaml --host envoy --limiter webdis.internal:7379"),
    ("render_large_numbers", "weir render large.yaml --host envoy"),
    (
        "render_istio",
        "weir render who.yaml --host istio --url oci://registry.example.com/weir:1 --sha256 c0ffee --namespace edge \
         --limiter webdis.infra.svc.cluster.local:7379 --selector istio=ingressgateway",
    ),
    ("render_istio_without_a_url", "weir render who.yaml --host istio"),
    ("render_no_limiter", "weir render who.yaml --host envoy --limiter webdis"),
    ("render_a_policy_with_errors", "weir render errors.yaml --host envoy"),
    ("render_observe", "weir render observing.yaml --host envoy"),
    ("top_no_url", "weir top"),
    ("top_no_secret", "weir top http://127.0.0.1:9/.weir/top"),
    ("top_empty_secret", "weir top --secret-file - http://127.0.0.1:9/.weir/top </dev/null"),
    ("top_odd_secret", "printf 'a\\001b' | weir top --secret-file - http://127.0.0.1:9/.weir/top"),
    ("top_https", "WEIR_DEBUG_SECRET=sesame weir top https://127.0.0.1:9/.weir/top"),
    ("top_no_path", "WEIR_DEBUG_SECRET=sesame weir top http://127.0.0.1:9"),
    ("top_no_scheme", "WEIR_DEBUG_SECRET=sesame weir top 127.0.0.1:9/.weir/top"),
    ("top_user", "WEIR_DEBUG_SECRET=sesame weir top http://me:password@127.0.0.1:9/.weir/top"),
    ("top_twice", "WEIR_DEBUG_SECRET=sesame weir top http://127.0.0.1:9/top http://127.0.0.1:9/top"),
    ("top_every", "WEIR_DEBUG_SECRET=sesame weir top --every 1 http://127.0.0.1:9/.weir/top"),
    // The discard port: privileged, and nobody serves it any more.
    ("top_nobody", "WEIR_DEBUG_SECRET=sesame weir top http://127.0.0.1:9/.weir/top"),
    ("help", "weir --help"),
    ("help_check", "weir check --help"),
    ("help_explain", "weir explain --help"),
    ("help_render", "weir render --help"),
    ("help_top", "weir top --help"),
];

/// The same of proxies that say what [`answering`] has them say: `@` stands for their address, and for that of one that
/// says nothing, `@SILENT`.
const TOPS: &[(&str, &str)] = &[
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

/// Compares what was told with the file of that name, or writes the file.
fn compare(name: &str, told: &str) -> Result<(), String> {
    let file = folder().join(name).with_extension("txt");
    if std::env::var_os("WEIR_BLESS").is_some() {
        fs::write(&file, told).expect("a writable folder");
    }
    match fs::read_to_string(&file) {
        Ok(wanted) if wanted == told => Ok(()),
        Ok(wanted) => Err(format!("{}\nwanted:\n{wanted}\ntold:\n{told}", file.display())),
        Err(_) => Err(format!("{} is missing; told:\n{told}", file.display())),
    }
}

#[test]
fn it_prints_what_the_files_of_its_folder_hold() {
    let compared = RUNS.iter().map(|(name, line)| compare(name, &told(line, &folder())));
    let wrong: Vec<String> = compared.filter_map(Result::err).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let names: BTreeSet<&str> = RUNS.iter().chain(TOPS).map(|(name, _)| *name).collect();
    assert_eq!(names.len(), RUNS.len() + TOPS.len(), "a name stands for two commands");
    for entry in fs::read_dir(folder()).expect("tests/cli") {
        let path = entry.expect("an entry").path();
        let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
        let is_told = fs::read_to_string(&path).is_ok_and(|text| text.starts_with("$ "));
        assert!(!is_told || names.contains(name.as_str()), "{} is of no command", path.display());
    }
}

/// The files of a folder of tests/policies with one of these extensions.
fn policies(of: &str, extensions: &[&str]) -> Vec<PathBuf> {
    let entries = fs::read_dir(Path::new(ROOT).join("tests/policies").join(of)).expect("the folder is there");
    let mut files: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extensions.iter().any(|wanted| extension == *wanted)));
    files.sort();
    files
}

#[test]
fn it_tells_of_every_bad_policy_what_the_core_tells() {
    let env = [("WEIR_HASH_SECRET", "secret"), ("WEIR_HASH_SECRET_NEWLINE", "Basic c2VjcmV0\n"), ("WEIR_EMPTY", "")];
    let mut checked = 0;
    for file in policies("bad", &["yaml", "json"]) {
        let name = file.file_name().expect("a name").to_str().expect("a plain name");
        let messages = fs::read_to_string(file.with_extension("txt")).expect("its messages");
        let (people, _) = messages.split_once("--- log\n").expect("both readers");
        let mut wanted: Vec<&str> = people.lines().collect();
        let folder = file.parent().expect("a folder");
        let output = weir(folder, &["check", "--check-environment", name], &env, b"");
        let out = text(&output.stdout);
        let lines: Vec<&str> = out.lines().collect();
        let mut told: Vec<&str> = lines.iter().filter_map(|line| Some(line.split_once(": error: ")?.1)).collect();
        // What is no policy at all is told in other words.
        let is_policy = !told.iter().any(|told| told.starts_with("no policy found") || told.starts_with("is no JSON"));
        if is_policy {
            told.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(told, wanted, "{name}");
        }
        assert_eq!(output.status.code(), Some(1), "{name}");
        checked += usize::from(is_policy);
    }
    assert!(checked >= 150, "{checked}");
}

#[test]
fn it_finds_no_error_in_good_policies() {
    for file in policies("good", &["yaml"]) {
        let name = file.file_name().expect("a name").to_str().expect("a plain name");
        let output = weir(file.parent().expect("a folder"), &["check", name], &[], b"");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
    }
}

/// A directory of this process, for as long as it is used.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a writable directory");
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A configuration of envoy/ with its words in at signs replaced.
fn filled(template: &str, policy: &str) -> String {
    let indent =
        template.lines().find(|line| line.trim() == "@POLICY@").map_or(0, |line| line.len() - line.trim().len());
    let policy = policy.trim().replace('\n', &format!("\n{}", " ".repeat(indent)));
    let numbers = ["PORT", "ADMIN_PORT", "UPSTREAM_PORT", "WEBDIS_PORT"];
    let text = numbers.iter().fold(template.to_owned(), |text, name| text.replace(&format!("@{name}@"), "1"));
    text.replace("@MODULE@", "weir.wasm")
        .replace("@LISTENERS@", "listener.yaml")
        .replace("@FILTER@", "filter.yaml")
        .replace("@POLICY@", &policy)
}

#[test]
fn what_this_repository_holds_has_no_errors_and_no_warnings() {
    let root = Path::new(ROOT);
    let examples: Vec<String> = fs::read_dir(root.join("examples"))
        .expect("examples")
        .map(|entry| entry.expect("an entry").path().to_string_lossy().into_owned())
        .filter(|path| path.ends_with(".yaml") && !path.contains("/examples/alerts"))
        .collect();
    assert!(examples.len() >= 2);
    let mut args = vec!["check", "--deny-warnings"];
    args.extend(examples.iter().map(String::as_str));
    let output = weir(root, &args, &[], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));

    let folder = Folder::new("configurations");
    let folder = &folder.0;
    let policy: Tree = serde_saphyr::from_str(include_str!("../examples/policy.yaml")).expect("YAML");
    let policy = serde_json::to_string_pretty(&policy).expect("JSON");
    for (name, template) in [
        ("bootstrap.yaml", include_str!("../envoy/bootstrap.yaml")),
        ("listener.yaml", include_str!("../envoy/listener.yaml")),
        ("filter.yaml", include_str!("../envoy/filter.yaml")),
        ("patterns.yaml", include_str!("../envoy/patterns.yaml")),
    ] {
        fs::write(folder.join(name), filled(template, &policy)).expect("a writable directory");
    }
    let args = ["check", "--deny-warnings", "bootstrap.yaml", "listener.yaml", "filter.yaml", "patterns.yaml"];
    let output = weir(folder, &args, &[], b"");
    assert_eq!(text(&output.stdout), "1 policy: no errors, no warnings\n");
    // The cluster is the bootstrap's: another file of the same Envoy.
    let filter = fs::read_to_string(folder.join("filter.yaml")).expect("it is there");
    fs::write(folder.join("filter.yaml"), filter.replace(r#""cluster": "webdis""#, r#""cluster": "redis""#))
        .expect("a writable directory");
    let output = weir(folder, &args, &[], b"");
    let said = text(&output.stdout);
    assert!(said.contains(r#""redis" is no cluster of this configuration"#), "{said}");
    assert_eq!(output.status.code(), Some(1));
}

/// A request of these headers.
struct Sent<'a>(&'a [(&'a str, &'a str)]);

impl Asked for Sent<'_> {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.0.iter().find(|(other, _)| *other == name).map(|(_, value)| value.as_bytes().to_vec())
    }
    fn is_doubled(&self, name: &str) -> bool {
        self.0.iter().filter(|(other, _)| *other == name).count() > 1
    }
    fn property(&self, _path: &[&str]) -> Option<Vec<u8>> {
        None
    }
}

/// What stands under a word of an object.
fn get<'t>(tree: &'t Tree, word: &str) -> &'t Tree {
    let Tree::Map(pairs) = tree else { panic!("no object: {tree:?}") };
    &pairs.iter().find(|(key, _)| key == word).unwrap_or_else(|| panic!("no {word} in {tree:?}")).1
}

fn items(tree: &Tree) -> &[Tree] {
    let Tree::List(items) = tree else { panic!("no list: {tree:?}") };
    items
}

#[test]
fn explain_names_the_buckets_that_the_core_asks() {
    let environment: Environment = &|name| (name == SECRET.0).then(|| SECRET.1.to_owned());
    let requests: [&[(&str, &str)]; 5] = [
        &[(":method", "GET"), (":path", "/v1/x")],
        &[(":method", "POST"), (":path", "/v1/reports/7/export"), ("x-user-id", "acme"), ("x-org", "o")],
        &[(":method", "DELETE"), (":path", "/a%2fb//c"), ("x-user-id", "ops"), ("x-write", "1")],
        &[(":method", "OPTIONS"), (":path", "*"), ("access-control-request-method", "PUT"), (":authority", "A.b:80")],
        &[(":method", "PUT"), (":path", "/v1/x/../y"), ("x-user-id", "mallory"), ("x-write", "1"), ("x-org", "ä")],
    ];
    let mut files = policies("good", &["yaml"]);
    files.extend([folder().join("who.yaml"), folder().join("warnings.yaml"), folder().join("deny.yaml")]);
    let mut asked = 0;
    for file in files {
        let tree: Tree = serde_saphyr::from_str(&fs::read_to_string(&file).expect("a policy")).expect("YAML");
        let policy = Policy::from_tree(&tree, environment).expect("a good policy");
        for headers in requests {
            let line = format!("{} {}", headers[0].1, headers[1].1);
            let headers_file: String = headers[2..].iter().map(|(name, value)| format!("{name}: {value}\n")).collect();
            let file = file.to_str().expect("a plain name");
            let args = ["explain", file, "--format", "json", "--request", &line, "-H", "@-"];
            let output = weir(Path::new(ROOT), &args, &[SECRET], headers_file.as_bytes());
            assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
            let explained = Tree::from_json(&output.stdout).expect("JSON");
            let Ruling::Ask(asks) = judge(&policy, &Sent(headers)).ruling else { continue };
            let wanted: Vec<(Tree, Tree)> = asks
                .iter()
                .map(|ask| (Tree::Text(ask.key.clone()), Tree::Int(ask.limit.burst().try_into().expect("small"))))
                .collect();
            let rules = items(get(&explained, "rules")).iter();
            let buckets = rules.flat_map(|rule| items(get(rule, "buckets")));
            let told: Vec<(Tree, Tree)> = buckets
                .map(|bucket| (get(bucket, "key").clone(), get(get(bucket, "limit"), "burst").clone()))
                .collect();
            assert_eq!(told, wanted, "{file} {line}");
            asked += told.len();
        }
    }
    assert!(asked >= 60, "{asked}");
}

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

#[test]
fn colours_are_for_terminals() {
    let check = |env: &[(&str, &str)]| text(&weir(&folder(), &["check", "errors.yaml"], env, b"").stdout);
    let plain = check(&[]);
    assert!(!plain.contains('\u{1b}'), "{plain}");
    let coloured = check(&[("CLICOLOR_FORCE", "1")]);
    assert!(coloured.contains("\u{1b}[1m\u{1b}[31merror:\u{1b}[0m"), "{coloured:?}");
    assert_eq!(check(&[("CLICOLOR_FORCE", "1"), ("NO_COLOR", "1")]), plain);
}

#[test]
fn no_character_of_a_file_reaches_a_terminal_as_a_command() {
    let policy = "version: 1\nlimiters: {main: {transport: webdis, cluster: webdis, \"\\e[2J\": 1}}\nrules: []\n";
    let said = text(&weir(&folder(), &["check", "-"], &[("CLICOLOR_FORCE", "1")], policy.as_bytes()).stdout);
    assert!(said.contains("unknown field") && !said.contains("\u{1b}[2J"), "{said:?}");
}

#[test]
fn completions_and_the_manual_name_every_command() {
    for shell in ["bash", "zsh", "fish"] {
        let script = text(&weir(&folder(), &["completions", shell], &[], b"").stdout);
        for word in ["check", "explain", "render", "top", "deny-warnings", "secret-file", "every"] {
            assert!(script.contains(word), "{word} in the completions for {shell}");
        }
    }
    let manual = text(&weir(&folder(), &["man"], &[], b"").stdout);
    for word in [".TH weir 1", "weir\\-check", "weir\\-explain", "weir\\-render", "weir\\-top", "Exit code"] {
        assert!(manual.contains(word), "{word} in the manual\n{manual}");
    }
}

/// Damages a text in one of several ways.
fn damaged(text: &[u8], chance: u64) -> Vec<u8> {
    let mut bytes = text.to_vec();
    let at = (chance as usize).wrapping_mul(7919) % bytes.len();
    match chance % 6 {
        0 => bytes.truncate(at),
        1 => bytes[at] = b"{}[]:,&*\"'|>-#\t\n"[at % 16],
        2 => bytes[at] ^= 1 << (at % 8),
        3 => drop(bytes.drain(at..(at + 40).min(text.len()))),
        4 => bytes.splice(at..at, text[..at.min(200)].to_vec()).for_each(drop),
        _ => bytes.splice(at..at, b"[[[[[[[[[[{{{{{{{{\xf0\x9f\x98\x80 - - - ? :".to_vec()).for_each(drop),
    }
    bytes
}

#[test]
fn no_file_makes_it_panic() {
    let mut files = policies("good", &["yaml"]);
    files.extend(
        fs::read_dir(folder())
            .expect("tests/cli")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "yaml" || extension == "json")),
    );
    let deep = ["[".repeat(100_000), "{\"a\":".repeat(100_000), "- ".repeat(50_000), "a: &a [*a]\n".to_owned()];
    let bomb: String = (1..30).map(|n| format!("a{n}: &a{n} [*a{0}, *a{0}, *a{0}, *a{0}]\n", n - 1)).collect();
    let chain: String = (1..50_000).map(|n| format!("a{n}: &a{n} [*a{}]\n", n - 1)).collect();
    let whole = deep.into_iter().chain([format!("a0: &a0 []\n{chain}")]).chain([
        format!("a0: &a0 [x, x]\n{bomb}"),
        String::new(),
        "\u{feff}".to_owned(),
    ]);
    let mut inputs: Vec<Vec<u8>> = whole.map(String::into_bytes).collect();
    for (number, file) in files.iter().enumerate() {
        let text = fs::read(file).expect("a file");
        inputs.extend((0..12).map(|turn| damaged(&text, (number * 12 + turn) as u64)));
    }
    for input in inputs {
        for args in [&["check", "-"][..], &["explain", "-", "--policy", "1", "--request", "GET /v1/x?a=1"]] {
            let output = weir(&folder(), args, &[SECRET], &input);
            let said = text(&output.stderr);
            let code = output.status.code();
            assert!(code.is_some_and(|code| code <= 2) && !said.contains("panicked"), "{said}\n{input:?}");
        }
    }
}

fn module() -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| Path::new(ROOT).join("target"), PathBuf::from);
    let module = std::env::var_os("WEIR_MODULE").map(PathBuf::from);
    let module = module.unwrap_or_else(|| target.join("wasm32-wasip1/release/weir.wasm"));
    assert!(module.is_file(), "{} is missing; `make module` builds it", module.display());
    module
}

#[test]
fn a_real_envoy_runs_what_render_writes() {
    let scratch = Scratch::new().unwrap();
    let policy = "version: 1
limiters: {main: {transport: webdis, cluster: webdis, timeout: 2s}}
classes: [{class: two, match: {query: {v: {exact: '2'}}}, exempt: true}]
rules:
  - name: per-user
    key: [{header: {name: x-user-id, as: user, trusted: true}}]
    lease: {lend: 0.25}
    limits: 2/d
    on_error: deny
";
    let redis = Redis::start(&scratch, RedisOptions::default()).unwrap();
    let webdis = Webdis::start(&scratch, &redis, WebdisOptions::default()).unwrap();
    let peer = Peer::start(&scratch, PeerOptions::default()).unwrap();
    let limiter = format!("127.0.0.1:{}", webdis.port());
    let files = Folder::new("filter");
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
    let listener = include_str!("../envoy/listener.yaml");
    let (before, rest) = listener.split_once("                - name: weir\n").expect("its filter");
    let (_, after) = rest.split_once("                # The router is last").expect("its router");
    let indented: String = filters.lines().map(|line| format!("              {line}\n")).collect();
    let listeners = format!("{before}{indented}                # The router is last{after}");
    let module = module();
    let options = EnvoyOptions::new(&module, "", peer.upstream_port(), webdis.port());
    let envoy = Envoy::start(&scratch, EnvoyOptions { listeners: Listeners::File(&listeners), ..options }).unwrap();
    let mut client = Client::new(envoy.port());
    let answers = ["/", "/?v=2", "/", "/", "/?v=2"].map(|path| client.get(path, &[("x-user-id", b"ac me")]).unwrap());
    assert_eq!(answers.each_ref().map(|answer| answer.status), [200, 200, 200, 429, 200]);
    assert_eq!(envoy.errors(), Vec::<String>::new());

    // And what explain says of that request is what became of it.
    let args = ["explain", "-", "--request", "GET /", "-H", "x-user-id: ac me", "--format", "json"];
    let explained = Tree::from_json(&weir(&folder(), &args, &[], policy.as_bytes()).stdout).expect("JSON");
    let [rule] = items(get(&explained, "rules")) else { panic!("{explained:?}") };
    let [bucket] = items(get(rule, "buckets")) else { panic!("{explained:?}") };
    let mut operator = redis.operator().unwrap();
    let keys: Vec<String> = redis::cmd("KEYS").arg("*").query(&mut operator).unwrap();
    assert_eq!(keys.into_iter().map(Tree::Text).collect::<Vec<_>>(), [get(bucket, "key").clone()]);
    let [full, empty] = items(get(&explained, "answers")) else { panic!("{explained:?}") };
    for (told, answer) in [(full, &answers[0]), (empty, &answers[3])] {
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

    // And the cluster in a bootstrap of its own, which Envoy reads without running it.
    let folder = Folder::new("bootstrap");
    let bootstrap = folder.0.join("bootstrap.yaml");
    fs::write(&bootstrap, format!("static_resources:\n  clusters:\n{}", indent(cluster))).unwrap();
    let envoy =
        std::env::var_os("WEIR_ENVOY").map_or_else(|| Path::new(ROOT).join(".tools/envoy/bin/envoy"), PathBuf::from);
    let validated = Command::new(envoy).args(["--mode", "validate", "-c"]).arg(&bootstrap).output().expect("an Envoy");
    assert!(validated.status.success(), "{}", text(&validated.stderr));
}

/// The filter of envoy/listener.yaml with a policy written out as a Struct.
fn with_struct(policy: &str) -> String {
    let listener = with_filter(include_str!("../envoy/listener.yaml"));
    let (before, rest) = listener.split_once("                      configuration:\n").expect("its configuration");
    let (_, after) = rest.split_once("                # The router is last").expect("its router");
    let policy: String = policy.lines().map(|line| format!("                          {line}\n")).collect();
    format!(
        "{before}                      configuration:
                        \"@type\": type.googleapis.com/google.protobuf.Struct
                        value:
{policy}                # The router is last{after}"
    )
}

/// Envoy's YAML makes booleans of words and texts of numbers; check finds what the module then refuses, and no more.
#[test]
fn check_reads_a_struct_as_a_real_envoy_does() {
    let constants = ["yes", "On", "n", "oN", "'yes'", "010", "12", "1.5", "~", "0x1F", "-1", "1e3"];
    let requests = ["3000000000", "2147483647", "120.0", "010", "08", "0x10", "+5", "0o17", "1e3", "1_0", "'5'"];
    let rule = |number: usize, constant: &str, requests: &str| {
        format!(
            "  - {{name: r{number}, key: [{{constant: {constant}}}], limits: {{requests: {requests}, per: 1m}}, \
             on_error: deny, mode: exact}}\n"
        )
    };
    let policy = |rules: Vec<String>| {
        format!("version: 1\nlimiters: {{main: {{transport: webdis, cluster: webdis}}}}\nrules:\n{}", rules.concat())
    };
    let of_constants = constants.iter().enumerate().map(|(number, constant)| rule(number, constant, "1")).collect();
    let of_requests = requests.iter().enumerate().map(|(number, requests)| rule(number, "x", requests)).collect();
    let merged =
        "version: 1\nlimiters: {main: &main {transport: webdis, cluster: webdis}}\nrules: []\nresponse: {<<: *main}\n";
    for policy in [policy(of_constants), policy(of_requests), merged.to_owned()] {
        let listeners = with_struct(&policy);
        let scratch = Scratch::new().unwrap();
        let module = module();
        // It has no request to serve.
        let options = EnvoyOptions::new(&module, "", 9, 9);
        let options = EnvoyOptions { listeners: Listeners::File(&listeners), expect_ready: false, ..options };
        let envoy = Envoy::start(&scratch, options).unwrap();
        let path = |line: &str| Some(line.rsplit_once(" wasm log weir: weir: ")?.1.split_once(": ")?.0.to_owned());
        let refused: BTreeSet<String> = envoy.errors().iter().filter_map(|line| path(line)).collect();
        assert!(refused.len() > 1, "{}", envoy.log());

        let listeners = filled(&listeners, "");
        let output = weir(&folder(), &["check", "-", "--format", "json"], &[], listeners.as_bytes());
        let reports = Tree::from_json(&output.stdout).expect("JSON");
        let errors = items(&reports).iter().filter(|report| *get(report, "severity") == Tree::Text("error".to_owned()));
        let told: BTreeSet<String> = errors
            .map(|error| match get(error, "path") {
                Tree::Text(path) => path.clone(),
                _ => panic!("{error:?}"),
            })
            .collect();
        assert_eq!(told, refused, "{policy}{}", envoy.log());
    }
}

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
                    "name": "all", "domains": ["*"], "routes": answers.iter().chain(&moved).collect::<Vec<_>>(),
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
        // And what is shown first is shown in the README.
        if *name == "top" {
            let (_, told) = told.split_once('\n').expect("the command");
            let (told, _) = told.split_once("--- exit").expect("the end");
            assert!(include_str!("../README.md").contains(&format!("\n{told}```\n")), "{told}");
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Asks again until it is so, and says whether it is.
fn wait_for(mut condition: impl FnMut() -> bool) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(20);
    while !condition() {
        if std::time::Instant::now() >= end {
            return false;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    true
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
    let counts = |kind: &str| -> Vec<(String, i64)> {
        let output = top(&["--header", "X-Who", "--format", "json", "--secret-file", "-"], &[], b"open sesame\n");
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let told = Tree::from_json(&output.stdout).expect("JSON");
        assert_eq!(*get(&told, "answered"), Tree::Int(2), "{told:?}");
        let rules = items(get(&told, "rules")).iter();
        let ranks = rules.flat_map(|rule| items(get(rule, kind)));
        ranks
            .map(|rank| match (get(rank, "tenant"), get(rank, "count"), get(rank, "error")) {
                (Tree::Text(tenant), Tree::Int(count), Tree::Int(0)) => (tenant.clone(), *count),
                _ => panic!("{rank:?}"),
            })
            .collect()
    };
    let wanted = |counts: &[(&str, i64)]| -> Vec<(String, i64)> {
        counts.iter().map(|(tenant, count)| ((*tenant).to_owned(), *count)).collect()
    };
    // Rates, by which they are in order, depend on when each worker has told the others.
    let sorted = |kind| {
        let mut counts = counts(kind);
        counts.sort();
        counts
    };
    let busiest = wanted(&[("user.acme", 1), ("user.bob", 9), ("user.eve", 6)]);
    assert!(wait_for(|| sorted("busiest") == busiest), "{:?}", counts("busiest"));
    let refused = wanted(&[("user.bob", 6), ("user.eve", 3)]);
    assert!(wait_for(|| sorted("refused") == refused), "{:?}", counts("refused"));

    let known = [("WEIR_DEBUG_SECRET", "open sesame")];
    let output = top(&["--once", "--header", "x-who"], &known, b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = text(&output.stdout);
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

#[test]
fn a_fingerprint_is_the_one_that_a_real_envoy_shows() {
    let policy = "version: 1
limiters: {main: {transport: webdis, cluster: webdis, authority: 'a \"b\" c', timeout: 2s}}
rules:
  - name: per-user
    key: [{header: {name: x-user-id, as: user, trusted: true}}]
    lease: {lend: 0.25}
    limits: {free: 2/d, gold: {requests: 1000, per: 1m, burst: 2e3}}
    tier: {default: free, tenants: {user.yes: gold}}
    on_error: deny
    shadow_mode: false
  - {name: all, key: [{constant: a}], limits: [1/s, 50/m], on_error: allow, mode: exact}
response: {body: \"é {rule}\\n\"}
";
    let rendered = |host: &str| {
        let output = weir(&folder(), &["render", "-", "--host", host, "--url", "oci://a/b:1"], &[], policy.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        text(&output.stdout)
    };
    let json = serde_json::to_string(&serde_saphyr::from_str::<Tree>(policy).expect("YAML")).expect("JSON");
    let reordered = json.replacen(r#"{"version":1,"#, "{", 1);
    let reordered = format!(r#"{},"version":1.0}}"#, reordered.strip_suffix('}').expect("an object"));
    let with_json = |json: &str| {
        filled(&with_filter(include_str!("../envoy/listener.yaml")), json)
            .replace("port_value: 1", "port_value: @PORT@")
            .replace("weir.wasm", "@MODULE@")
    };
    let fingerprints = |file: &str| -> Vec<String> {
        let output = weir(&folder(), &["check", "-", "--fingerprints"], &[], file.as_bytes());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stdout));
        let out = text(&output.stdout);
        out.lines().filter_map(|line| Some(line.split_once("fingerprint ")?.1.to_owned())).collect()
    };
    let known = fingerprints(policy);
    assert_eq!(known.len(), 1);
    assert_eq!([fingerprints(&rendered("envoy")), fingerprints(&rendered("istio"))], [known.clone(), known.clone()]);
    let args = ["explain", "-", "--request", "GET /", "--format", "json"];
    let explained = Tree::from_json(&weir(&folder(), &args, &[], policy.as_bytes()).stdout).expect("JSON");
    assert_eq!(*get(&explained, "fingerprint"), Tree::Int(known[0].parse().expect("a number")));

    // Envoy's YAML makes a text of a fraction: the policy is taken, and is another one than in a file of its own.
    let with_fraction = policy.replace("2e3", "2000");
    let without_fraction = with_fraction.replace("lend: 0.25", "life: 60s");
    for (listeners, file, is_same) in [
        (with_json(&json), policy, true),
        (with_json(&reordered), policy, true),
        (with_struct(&without_fraction), &without_fraction, true),
        (with_struct(&with_fraction), &with_fraction, false),
    ] {
        let scratch = Scratch::new().unwrap();
        let module = module();
        // It has no request to serve.
        let options = EnvoyOptions::new(&module, "", 9, 9);
        let envoy = Envoy::start(&scratch, EnvoyOptions { listeners: Listeners::File(&listeners), ..options }).unwrap();
        let shown = || envoy.stat("wasmcustom.weir.rl.policy").map(|policy| vec![policy.to_string()]);
        assert!(wait_for(|| shown().is_some()), "{}", envoy.log());
        assert_eq!(shown(), Some(fingerprints(&filled(&listeners, ""))), "{listeners}");
        assert_eq!(shown() == Some(fingerprints(file)), is_same, "{listeners}");
    }
}

fn indent(text: &str) -> String {
    text.lines().map(|line| format!("  {line}\n")).collect()
}

/// The blocks of the README that show the tool: commands, each with what it prints.
#[test]
fn the_readme_shows_what_it_prints() {
    let readme = include_str!("../README.md");
    let blocks = readme.split("```console\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default());
    let mut shown = 0;
    for block in blocks {
        for command in format!("\n{block}").split("\n$ ").skip(1) {
            let (line, wanted) = command.split_once('\n').expect("a command and what it prints");
            let told = told(line, Path::new(ROOT));
            let (_, told) = told.split_once('\n').expect("the command");
            let (told, _) = told.rsplit_once("--- exit").expect("its end");
            assert_eq!(told.trim_end(), wanted.trim_end(), "{line}");
            shown += 1;
        }
    }
    assert!(shown >= 3, "{shown}");
}
