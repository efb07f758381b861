//! `weir render`: a policy as a host wants it: Envoy's filter, or Istio's WasmPlugin.

use clap::{Args, ValueEnum};
use weir::policy::{Limiter, Policy, TransportName, Tree};

use crate::check::named_variables;
use crate::document::Node;
use crate::found::{Found, choose, policies};
use crate::parse::read;
use crate::report::{Located, Report, number, object, text};
use crate::{Outcome, Output, Stop, input, yaml};

/// Where the module runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum HostName {
    /// The HTTP filter and the limiters' clusters
    Envoy,
    /// A WasmPlugin
    Istio,
}

const HTTP_OPTIONS: &str = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const HTTP_OPTIONS_OF: &str = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
const WASM: &str = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";

const AFTER: &str = "\
Exit code: 0 rendered, 1 the policy has errors, 2 wrong usage, or a file cannot be read.";

/// Render a policy for a host: Envoy's HTTP filter with the limiters' clusters, or Istio's WasmPlugin.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// A file with a policy, as for weir check
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: String,

    /// For which host
    #[arg(long, value_name = "HOST")]
    host: HostName,

    /// Which policy of the file: its number, from 1, or a part of its name
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// Name of the filter, or of the WasmPlugin
    #[arg(long, value_name = "NAME", default_value = "weir")]
    name: String,

    /// Where a limiter (a bridge, or Webdis) listens, with its name where there are several. Envoy: of the cluster. Istio: a service
    /// and its port, which names the cluster
    #[arg(long = "limiter", value_name = "[NAME=]HOST:PORT")]
    limiters: Vec<String>,

    /// Envoy: where the module is
    #[arg(long, value_name = "FILE", default_value = "/etc/envoy/weir.wasm", value_hint = clap::ValueHint::FilePath)]
    module: String,

    /// Envoy: where the file with the filter will be, which the connection manager discovers
    #[arg(long, value_name = "FILE", default_value = "/etc/envoy/filter.yaml", value_hint = clap::ValueHint::FilePath)]
    filter: String,

    /// Istio, needed: where the module is, such as oci://registry.example.com/weir:1
    #[arg(long, value_name = "URL")]
    url: Option<String>,

    /// Istio: SHA-256 of the module, or of the manifest of an image
    #[arg(long, value_name = "HEX")]
    sha256: Option<String>,

    /// Istio: namespace of the WasmPlugin; in the root namespace, istio-system, it holds for all
    #[arg(long, value_name = "NAMESPACE", default_value = "istio-system")]
    namespace: String,

    /// Istio: labels of the workloads, such as istio=ingressgateway; without any, all of the namespace
    #[arg(long = "selector", value_name = "KEY=VALUE")]
    selectors: Vec<String>,
}

pub fn run(options: &Options) -> Result<Output, Stop> {
    let document = input::file(&options.file)?;
    let nodes = read(&document, options.file.ends_with(".json"))
        .map_err(|error| Stop(format!("{}:{}:{}: {}", options.file, error.at.line, error.at.column, error.message)))?;
    let found = choose(&options.file, nodes.iter().flat_map(policies).collect(), options.policy.as_deref())?;
    let node = match &found.policy {
        Ok(node) => node,
        Err(error) => return Ok(refused(&options.file, &found, vec![Report::error(error.at, error.message.clone())])),
    };
    let policy = match Policy::from_tree(&node.tree(), &|_| Some("set".to_owned())) {
        Ok(policy) => policy,
        Err(problems) => {
            let reports = problems.iter().map(|problem| Report::of(problem, node)).collect();
            return Ok(refused(&options.file, &found, reports));
        }
    };
    Ok(match options.host {
        HostName::Envoy => Output::fine(options.envoy(&policy, node)?),
        HostName::Istio => {
            Output { warnings: options.unplaced(&policy)?, ..Output::fine(options.istio(&policy, node)?) }
        }
    })
}

/// A policy that is not valid: its errors, as `weir check` tells them.
pub fn refused(file: &str, found: &Found, mut reports: Vec<Report>) -> Output {
    reports.sort_by_key(|report| report.at);
    let file = if file == "-" { "<stdin>" } else { file };
    let line = |report| Located { file: file.to_owned(), policy: found.name.clone(), report }.line();
    Output { text: reports.into_iter().map(line).collect(), warnings: Vec::new(), outcome: Outcome::Found }
}

/// The variables that a policy names, each once.
fn variables(node: &Node) -> Vec<String> {
    let mut variables: Vec<String> = Vec::new();
    for (_, (_, name)) in named_variables(node) {
        if !variables.iter().any(|known| known == name) {
            variables.push(name.to_owned());
        }
    }
    variables
}

fn list(items: impl IntoIterator<Item = Tree>) -> Tree {
    Tree::List(items.into_iter().collect())
}

impl Options {
    /// See envoy/listener.yaml, envoy/filter.yaml and envoy/bootstrap.yaml, where each word has its reason.
    fn envoy(&self, policy: &Policy, node: &Node) -> Result<String, Stop> {
        let addresses = self.addresses(policy)?;
        let mut clusters: Vec<(&str, Tree)> = Vec::new();
        for (_, limiter) in policy.limiters.iter() {
            let of = addresses.iter().find(|(name, ..)| *name == limiter.name);
            let (host, port) = match of {
                Some((_, host, port)) => (*host, *port),
                None if policy.limiters.iter().count() == 1 => ("127.0.0.1", usual_port(limiter.transport)),
                None => return Err(Stop(format!("--limiter: write where {0} is, too: {0}=HOST:PORT", limiter.name))),
            };
            let cluster = (limiter.cluster.as_str(), cluster(limiter, host, port));
            match clusters.iter().find(|(name, _)| *name == cluster.0) {
                None => clusters.push(cluster),
                Some(known) if *known == cluster => {}
                Some((name, _)) => return Err(Stop(format!("--limiter: cluster {name:?} would be at two places"))),
            }
        }
        let mut vm = vec![
            ("vm_id".to_owned(), text("weir")),
            ("runtime".to_owned(), text("envoy.wasm.runtime.v8")),
            ("code".to_owned(), object([("local", object([("filename", text(&self.module))]))])),
        ];
        let variables = variables(node);
        if !variables.is_empty() {
            let keys = list(variables.into_iter().map(text));
            vm.push(("environment_variables".to_owned(), object([("host_env_keys", keys)])));
        }
        let config = object([
            ("name", text(&self.name)),
            ("failure_policy", text("FAIL_RELOAD")),
            ("reload_config", object([("backoff", object([("base_interval", text("0.1s"))]))])),
            ("vm_config", Tree::Map(vm)),
            ("configuration", configuration(&node.tree())),
        ]);
        let source = object([
            ("resource_api_version", text("V3")),
            ("path_config_source", object([("path", text(&self.filter))])),
        ]);
        let discovery = object([("config_source", source), ("type_urls", list([text(WASM)]))]);
        let filter = object([("name", text(&self.name)), ("config_discovery", discovery)]);
        let resource = object([
            ("@type", text("type.googleapis.com/envoy.config.core.v3.TypedExtensionConfig")),
            ("name", text(&self.name)),
            ("typed_config", object([("@type", text(WASM)), ("config", config)])),
        ]);
        Ok(format!(
            "# Into http_filters of the connection manager, before envoy.filters.http.router.\n\
             http_filters:\n{}\
             # Into the file {}. A new policy is moved onto it, and holds for open connections, too.\n\
             resources:\n{}\
             # Into static_resources.clusters. No retries there: a call that is made twice takes twice.\n\
             clusters:\n{}",
            yaml::write(&list([filter]), 2),
            self.filter,
            yaml::write(&list([resource]), 2),
            yaml::write(&list(clusters.into_iter().map(|(_, cluster)| cluster)), 2),
        ))
    }

    /// The limiters whose places are told: name, host and port.
    fn addresses<'p>(&'p self, policy: &'p Policy) -> Result<Vec<(&'p str, &'p str, u16)>, Stop> {
        let names: Vec<&str> = policy.limiters.iter().map(|(_, limiter)| limiter.name.as_str()).collect();
        let mut addresses: Vec<(&str, &str, u16)> = Vec::new();
        for text in &self.limiters {
            let (name, place) = match (text.split_once('='), names.as_slice()) {
                (Some((name, place)), _) => (name, place),
                (None, [only]) => (*only, text.as_str()),
                (None, _) => {
                    return Err(Stop(format!("--limiter: write which one: NAME={text}; {}", names.join(", "))));
                }
            };
            if !names.contains(&name) || addresses.iter().any(|(known, ..)| *known == name) {
                let wrong = if names.contains(&name) { "stands twice" } else { "is no limiter of the policy" };
                return Err(Stop(format!("--limiter: {name:?} {wrong}; it has: {}", names.join(", "))));
            }
            let (host, port) = address(place)?;
            addresses.push((name, host, port));
        }
        Ok(addresses)
    }

    /// Istio: limiters whose clusters stay as they are, and are none that Istio makes of a service.
    fn unplaced(&self, policy: &Policy) -> Result<Vec<String>, Stop> {
        let placed = self.addresses(policy)?;
        let name = if policy.limiters.iter().count() > 1 { "NAME=" } else { "" };
        let unplaced = policy.limiters.iter().map(|(_, limiter)| limiter).filter(|limiter| {
            !limiter.cluster.starts_with("outbound") && !placed.iter().any(|(name, ..)| *name == limiter.name)
        });
        let warning = |limiter: &Limiter| {
            let Limiter { name: limiter, cluster, .. } = limiter;
            let name = name.replace("NAME", limiter);
            format!(
                "limiters.{limiter}.cluster: {cluster:?} is left as it is, and Istio names no cluster so by itself; write \
                 --limiter {name}HOST:PORT, or define that cluster in an EnvoyFilter"
            )
        };
        Ok(unplaced.map(warning).collect())
    }

    fn istio(&self, policy: &Policy, node: &Node) -> Result<String, Stop> {
        let url = self.url.as_deref().unwrap_or_default();
        if !["oci://", "http://", "https://", "file://"].iter().any(|scheme| url.starts_with(scheme)) {
            // Istio takes another one for no module at all, and lets everything pass.
            let wanted = "--url: write where the module is, with oci://, https://, http:// or file://";
            return Err(Stop(wanted.to_owned()));
        }
        let mut tree = node.tree();
        for (limiter, host, port) in self.addresses(policy)? {
            name_cluster(&mut tree, limiter, &format!("outbound|{port}||{host}"), host);
        }
        let mut spec = Vec::new();
        let mut push = |word: &str, tree| spec.push((word.to_owned(), tree));
        let labels = self.selectors.iter().map(|selector| match selector.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), text(value))),
            _ => Err(Stop(format!("--selector: {selector:?} is no label; write key=value"))),
        });
        let labels = labels.collect::<Result<Vec<_>, Stop>>()?;
        if !labels.is_empty() {
            push("selector", object([("matchLabels", Tree::Map(labels))]));
        }
        push("url", text(url));
        if let Some(sha256) = &self.sha256 {
            push("sha256", text(sha256));
        }
        push("failStrategy", text("FAIL_RELOAD"));
        let env = variables(node).into_iter().map(|name| object([("name", text(name)), ("valueFrom", text("HOST"))]));
        let env: Vec<Tree> = env.collect();
        if !env.is_empty() {
            push("vmConfig", object([("env", Tree::List(env))]));
        }
        push("pluginConfig", tree);
        let plugin = object([
            ("apiVersion", text("extensions.istio.io/v1alpha1")),
            ("kind", text("WasmPlugin")),
            ("metadata", object([("name", text(&self.name)), ("namespace", text(&self.namespace))])),
            ("spec", Tree::Map(spec)),
        ]);
        Ok(yaml::write(&plugin, 0))
    }
}

/// Where a limiter listens that has not been told otherwise.
fn usual_port(transport: TransportName) -> u16 {
    match transport {
        TransportName::Bridge => 7390,
        TransportName::Webdis => 7379,
    }
}

/// A cluster of Envoy with one endpoint, a limiter.
fn cluster(limiter: &Limiter, host: &str, port: u16) -> Tree {
    let name = limiter.cluster.as_str();
    let kind = if host.parse::<std::net::IpAddr>().is_ok() { "STATIC" } else { "STRICT_DNS" };
    let most = |word| (word, number(65_536));
    let thresholds = object([
        ("priority", text("DEFAULT")),
        most("max_connections"),
        most("max_pending_requests"),
        most("max_requests"),
    ]);
    let socket = object([("address", text(host)), ("port_value", number(port))]);
    let endpoint = object([("endpoint", object([("address", object([("socket_address", socket)]))]))]);
    let mut words = vec![("name", text(name)), ("type", text(kind)), ("connect_timeout", text("0.25s"))];
    if limiter.transport == TransportName::Bridge {
        // One connection for each worker; Webdis speaks HTTP/1.1 alone.
        let http2 = object([("http2_protocol_options", object([]))]);
        let options = object([("@type", text(HTTP_OPTIONS)), ("explicit_http_config", http2)]);
        words.push(("typed_extension_protocol_options", object([(HTTP_OPTIONS_OF, options)])));
    }
    words.push(("circuit_breakers", object([("thresholds", list([thresholds]))])));
    let endpoints = list([object([("lb_endpoints", list([endpoint]))])]);
    words.push(("load_assignment", object([("cluster_name", text(name)), ("endpoints", endpoints)])));
    Tree::Map(words.into_iter().map(|(word, tree)| (word.to_owned(), tree)).collect())
}

/// A policy as Envoy hands it on: a Struct, or JSON in a text where a number of it would become a text in one.
fn configuration(policy: &Tree) -> Tree {
    let (kind, value) = match would_change(policy) {
        false => ("Struct", policy.clone()),
        true => ("StringValue", text(serde_json::to_string(policy).unwrap_or_default())),
    };
    object([("@type", text(format!("type.googleapis.com/google.protobuf.{kind}"))), ("value", value)])
}

/// Whether Envoy's YAML makes texts of numbers in it: the module may refuse them, and the fingerprint is another one.
fn would_change(tree: &Tree) -> bool {
    match tree {
        Tree::Int(number) => i32::try_from(*number).is_err(),
        Tree::Float(_) => true,
        Tree::List(items) => items.iter().any(would_change),
        Tree::Map(pairs) => pairs.iter().any(|(_, value)| would_change(value)),
        _ => false,
    }
}

/// A host and a port.
fn address(text: &str) -> Result<(&str, u16), Stop> {
    let parts = text.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse().ok()?)));
    let (host, port) = parts.filter(|(host, port)| !host.is_empty() && *port > 0).ok_or_else(|| {
        Stop(format!("--limiter: {text:?} is no host and port; write one such as bridge.infra.svc.cluster.local:7390"))
    })?;
    Ok((host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host), port))
}

/// Puts the name of a limiter's cluster into a policy, and, where it has no authority, the host's.
fn name_cluster(policy: &mut Tree, limiter: &str, cluster: &str, host: &str) {
    let Tree::Map(pairs) = policy else {
        return;
    };
    let limiters = pairs.iter_mut().filter(|(key, _)| key == "limiters").filter_map(|(_, limiters)| match limiters {
        Tree::Map(limiters) => Some(limiters),
        _ => None,
    });
    for (_, limiter) in limiters.flatten().filter(|(name, _)| name == limiter) {
        if let Tree::Map(fields) = limiter {
            fields.iter_mut().filter(|(key, _)| key == "cluster").for_each(|(_, value)| *value = text(cluster));
            if !fields.iter().any(|(key, _)| key == "authority") {
                fields.push(("authority".to_owned(), text(host)));
            }
        }
    }
}
