//! `weir check`, beside the core and beside real Envoys.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use weir::policy::Tree;
use weir_stack::{Envoy, EnvoyOptions, Listeners, Scratch, with_filter};

use crate::{Folder, ROOT, filled, folder, get, items, module, policies, text, wait_for, weir, with_struct};

#[test]
fn check_tells_of_every_bad_policy_what_the_core_tells() {
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
fn check_finds_no_error_in_a_good_policy() {
    for file in policies("good", &["yaml"]) {
        let name = file.file_name().expect("a name").to_str().expect("a plain name");
        let output = weir(file.parent().expect("a folder"), &["check", name], &[], b"");
        let out = text(&output.stdout);
        assert_eq!(output.status.code(), Some(0), "{out}");
        assert!(out.lines().last().is_some_and(|last| last.starts_with("1 policy: no errors, ")), "{out}");
    }
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
    let policy: Tree = serde_saphyr::from_str(include_str!("../../examples/policy.yaml")).expect("YAML");
    let policy = serde_json::to_string_pretty(&policy).expect("JSON");
    for (name, template) in [
        ("bootstrap.yaml", include_str!("../../envoy/bootstrap.yaml")),
        ("listener.yaml", include_str!("../../envoy/listener.yaml")),
        ("filter.yaml", include_str!("../../envoy/filter.yaml")),
        ("patterns.yaml", include_str!("../../envoy/patterns.yaml")),
    ] {
        fs::write(folder.join(name), filled(template, &policy)).expect("a writable directory");
    }
    let args = ["check", "--deny-warnings", "bootstrap.yaml", "listener.yaml", "filter.yaml", "patterns.yaml"];
    let output = weir(folder, &args, &[], b"");
    assert_eq!(text(&output.stdout), "1 policy: no errors, no warnings\n");
    // The cluster is the bootstrap's: another file of the same Envoy.
    let filter = fs::read_to_string(folder.join("filter.yaml")).expect("it is there");
    fs::write(folder.join("filter.yaml"), filter.replace(r#""cluster": "bridge""#, r#""cluster": "redis""#))
        .expect("a writable directory");
    let output = weir(folder, &args, &[], b"");
    let said = text(&output.stdout);
    assert!(said.contains(r#""redis" is no cluster of this configuration"#), "{said}");
    assert_eq!(output.status.code(), Some(1));
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
        filled(&with_filter(include_str!("../../envoy/listener.yaml")), json)
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
