//! What each command prints, word for word, and its exit code.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use crate::pages::all_blocks;
use crate::top::TOPS;
use crate::{ROOT, compare, folder, told};

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
    ("check_routing", "weir check routing.yaml"),
    ("check_routing_fine", "weir check --deny-warnings routing_fine.yaml"),
    (
        "explain_limiter_of_a_tier",
        "weir explain limiters.yaml --request 'GET /' -H 'x-user-id: acme' -H 'x-plan: gold' --peer 203.0.113.9",
    ),
    (
        "explain_limiter_of_a_tenant_as_json",
        "weir explain limiters.yaml --request 'GET /' -H 'x-user-id: whale' --peer 203.0.113.9 --format json",
    ),
    (
        "explain_limiter_of_the_default",
        "weir explain limiters.yaml --request 'GET /' -H 'x-user-id: bob' --peer 203.0.113.9",
    ),
    (
        "explain_limiter_of_a_hash",
        "WEIR_HASH_SECRET=hush weir explain routing_fine.yaml --request 'GET /' -H @secret-headers.txt --peer 10.2.3.4",
    ),
    (
        "explain_limiter_that_is_unknown",
        "weir explain routing_fine.yaml --request 'GET /' -H @secret-headers.txt --peer 10.2.3.4",
    ),
    (
        "explain_limiter_that_is_unknown_as_json",
        "weir explain routing_fine.yaml --request 'GET /' -H @secret-headers.txt --peer 10.2.3.4 --format json",
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
    (
        "render_limiters_istio_with_all",
        "weir render limiters.yaml --host istio --url oci://a/weir:1 --limiter big=big.infra.svc.cluster.local:7379 \
         --limiter main=webdis.infra.svc.cluster.local:7379 --limiter own=own.infra.svc.cluster.local:7379 \
         --limiter idle=webdis.infra.svc.cluster.local:7379",
    ),
    ("render_istio_without_a_limiter", "weir render deny.yaml --host istio --url oci://a/weir:1"),
    ("render_istio_of_its_own_cluster", "weir render istio.yaml --policy 1 --host istio --url oci://a/weir:1"),
    ("help_bridge", "weir bridge --help"),
    ("render_bridge", "weir render bridge.yaml --host envoy"),
    (
        "render_bridge_istio",
        "weir render bridge.yaml --host istio --url oci://a/b:1 --limiter bridge.infra.svc.cluster.local:7390",
    ),
    ("check_bridge", "weir check bridge.yaml"),
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
    (
        "explain_an_address_of_the_host",
        "weir explain networks.yaml --request 'GET /' --property source.address=10.2.3.4:80",
    ),
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
    ("explain_windows", "weir explain windows.yaml --request 'GET /' -H 'x-api-key: k1'"),
    ("explain_windows_as_json", "weir explain windows.yaml --request 'GET /' -H 'x-api-key: k1' --format json"),
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

#[test]
fn each_command_prints_what_its_file_holds() {
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

/// The blocks of the pages that show the tool: commands, each with what it prints.
#[test]
fn the_pages_show_what_their_commands_print() {
    let mut shown = 0;
    for (_, block) in all_blocks("console") {
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

/// What the pages have a reader type works; what it prints is not shown.
#[test]
fn the_pages_commands_work() {
    let mut typed = 0;
    for (page, block) in all_blocks("sh") {
        for line in block.lines().filter_map(|line| line.strip_prefix("target/release/")) {
            let told = told(line, Path::new(ROOT));
            assert!(told.ends_with("--- exit 0\n"), "{page}: {told}");
            typed += 1;
        }
    }
    assert!(typed >= 3, "{typed}");
}
