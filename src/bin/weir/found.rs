//! Finds policies: a document that is one, and those inside configurations of Envoy and Istio.
//!
//! It must not judge a policy; it says where one stands, and what the host around it says.

use crate::Stop;
use crate::document::{NoDocument, Node, Place, Value};

/// What was looked for, for the message that nothing was found.
pub const LOOKED_FOR: &str = "no policy found; looked for a document with version, limiters and rules, for Envoy's \
    envoy.extensions.filters.http.wasm.v3.Wasm with such a configuration, and for Istio's kind: WasmPlugin with such a \
    spec.pluginConfig";

/// A policy, and where it stands.
#[derive(Debug)]
pub struct Found {
    /// Where in the document, for people; None for one that is the document.
    pub name: Option<String>,
    /// Where it starts.
    pub at: Place,
    /// What stands there.
    pub policy: Result<Node, NoDocument>,
    /// What is around it.
    pub host: Host,
}

/// What is around a policy.
#[derive(Debug)]
pub enum Host {
    /// Nothing.
    File,
    Envoy(Envoy),
    Istio(Istio),
}

/// What an Envoy configuration says around a policy.
#[derive(Debug)]
pub struct Envoy {
    /// Where its filter's configuration stands.
    pub at: Place,
    /// What a trap means: None where it is unset.
    pub failure_policy: Option<String>,
    /// The variables that the module is given.
    pub variables: Vec<String>,
    /// Its name among the filters of the connection manager, or among the resources that one discovers.
    pub filter: Option<String>,
    /// The connection managers that requests come to it from, as far as they are known: the one around it, or those that
    /// discover it.
    pub managers: Vec<Manager>,
}

/// How an Envoy finds out who the client is, and whose token it is.
#[derive(Clone, Debug)]
pub struct Manager {
    /// In which of the files at hand, by its number, and where.
    pub document: usize,
    pub at: Place,
    pub use_remote_address: bool,
    pub trusted_hops: i64,
    pub skips_append: bool,
    /// Extensions find it out.
    pub has_extensions: bool,
    /// Where a filter of it stands that verifies tokens.
    pub jwt_authn: Option<Place>,
}

/// A filter that a connection manager discovers: its configuration stands elsewhere, as a resource of this name.
#[derive(Debug)]
pub struct Discovered {
    pub name: String,
    /// Where it is named.
    pub at: Place,
    pub manager: Manager,
}

/// What an Istio document says around a policy.
#[derive(Debug)]
pub struct Istio {
    pub at: Place,
    pub fail_strategy: Option<String>,
    pub variables: Vec<String>,
}

/// The clusters that the documents at hand define.
#[derive(Debug, Default)]
pub struct Clusters {
    pub names: Vec<String>,
    /// Where they are listed: a bootstrap without other sources of clusters.
    pub is_complete: bool,
    is_open: bool,
}

/// The words of which a policy has at least one at its top.
const TOP: [&str; 6] = ["version", "limiters", "rules", "hash_secret_env", "namespace", "classes"];

const WASM: &str = "envoy.extensions.filters.http.wasm.v3.Wasm";

/// What is around a node.
#[derive(Clone, Default)]
struct Around {
    listener: Option<String>,
    filter: Option<String>,
    manager: Option<Manager>,
}

/// All policies of a document, in its order.
pub fn policies(document: &Node) -> Vec<Found> {
    policies_and_discovered(0, document).0
}

/// All policies of a document, and the filters that it discovers; the number is that of its file.
pub fn policies_and_discovered(number: usize, document: &Node) -> (Vec<Found>, Vec<Discovered>) {
    let (mut found, mut discovered) = (Vec::new(), Vec::new());
    document_of(document, &mut found, &mut discovered);
    let of_policies = found.iter_mut().flat_map(|found| match &mut found.host {
        Host::Envoy(envoy) => envoy.managers.iter_mut(),
        _ => [].iter_mut(),
    });
    of_policies.chain(discovered.iter_mut().map(|of| &mut of.manager)).for_each(|manager| manager.document = number);
    (found, discovered)
}

impl Found {
    /// Takes notice of the connection managers that discover it.
    pub fn discovered_by(&mut self, discovered: &[Discovered]) {
        if let Host::Envoy(envoy) = &mut self.host
            && envoy.managers.is_empty()
        {
            let of_this = discovered.iter().filter(|of| Some(&of.name) == envoy.filter.as_ref());
            envoy.managers.extend(of_this.map(|of| of.manager.clone()));
        }
    }
}

/// The one policy of a file that is meant.
pub fn choose(file: &str, mut found: Vec<Found>, wanted: Option<&str>) -> Result<Found, Stop> {
    let told = |number: usize, found: &Found| {
        let name = found.name.as_deref().unwrap_or("the document");
        format!("\n  {number}  {name} (line {})", found.at.line)
    };
    let list: String = (1..).zip(&found).map(|(number, found)| told(number, found)).collect();
    let index = match wanted {
        _ if found.is_empty() => return Err(Stop(format!("{file}: {LOOKED_FOR}"))),
        None if found.len() == 1 => Some(0),
        None => None,
        Some(wanted) => match wanted.parse::<usize>() {
            Ok(number) => number.checked_sub(1).filter(|index| *index < found.len()),
            Err(_) => {
                let named = |found: &Found| found.name.as_deref().is_some_and(|name| name.contains(wanted));
                let mut named = found.iter().enumerate().filter(|(_, found)| named(found)).map(|(index, _)| index);
                named.next().filter(|_| named.next().is_none())
            }
        },
    };
    match index {
        Some(index) => Ok(found.swap_remove(index)),
        None => {
            let how = "choose one of its policies with --policy NUMBER, or a part of its name";
            Err(Stop(format!("{file}: {how}:{list}")))
        }
    }
}

fn document_of(document: &Node, found: &mut Vec<Found>, discovered: &mut Vec<Discovered>) {
    let kind = document.get("kind").and_then(Node::text);
    match kind {
        Some("WasmPlugin") => wasm_plugin(&document.clone().with_merges(), found),
        Some(kind) if kind.ends_with("List") => {
            for item in document.get("items").map(Node::items).unwrap_or_default() {
                document_of(item, found, discovered);
            }
        }
        _ => {
            let is_other = kind.is_some() || type_of(document).is_some();
            if !is_other && TOP.iter().any(|word| document.get(word).is_some()) {
                let policy = Ok(document.clone().with_merges());
                found.push(Found { name: None, at: document.at, policy, host: Host::File });
            } else {
                walk(&document.clone().for_envoy(), &Around::default(), found, discovered);
            }
        }
    }
}

fn type_of(node: &Node) -> Option<&str> {
    let text = node.get("@type")?.text()?;
    Some(text.rsplit_once('/').map_or(text, |(_, name)| name))
}

/// Looks for the filter everywhere: it stands in listeners, in routes, and in files of the extension discovery service.
fn walk(node: &Node, around: &Around, found: &mut Vec<Found>, discovered: &mut Vec<Discovered>) {
    for item in node.items() {
        walk(item, around, found, discovered);
    }
    let of_type = type_of(node);
    let text = |key: &str| node.get(key).and_then(Node::text);
    let typed = (text("type_url"), node.get("value"));
    match (of_type, typed) {
        (Some(WASM), _) => return filter(node, around, found),
        (_, (Some(url), Some(value))) if url.ends_with(WASM) => return filter(value, around, found),
        _ => {}
    }
    let mut around = around.clone();
    if node.get("filter_chains").is_some() || node.get("api_listener").is_some() {
        around.listener = text("name").map(str::to_owned);
    }
    if node.get("typed_config").is_some() {
        around.filter = text("name").map(str::to_owned);
    }
    if of_type.is_some_and(|name| name.ends_with(".HttpConnectionManager")) {
        around.manager = Some(manager(node));
    }
    let types = node.at(&["config_discovery", "type_urls"]).map(Node::items).unwrap_or_default();
    let is_wasm = types.iter().filter_map(Node::text).any(|url| url.ends_with(WASM));
    if let (true, Some(name), Some(manager)) = (is_wasm, text("name"), &around.manager) {
        discovered.push(Discovered { name: name.to_owned(), at: node.at, manager: manager.clone() });
    }
    for (key, value) in node.pairs() {
        if key.text == "typed_per_filter_config" {
            for (name, value) in value.pairs() {
                walk(value, &Around { filter: Some(name.text.clone()), ..around.clone() }, found, discovered);
            }
        } else {
            walk(value, &around, found, discovered);
        }
    }
}

fn manager(node: &Node) -> Manager {
    let mut filters = node.get("http_filters").map(Node::items).unwrap_or_default().iter();
    let verifies = |filter: &&Node| {
        let config = filter.get("typed_config");
        config.and_then(type_of).is_some_and(|name| name.ends_with(".jwt_authn.v3.JwtAuthentication"))
    };
    let flag = |key: &str| matches!(node.get(key).map(|node| &node.value), Some(Value::Bool(true)));
    Manager {
        document: 0,
        at: node.at,
        use_remote_address: flag("use_remote_address"),
        trusted_hops: match node.get("xff_num_trusted_hops").map(|node| &node.value) {
            Some(Value::Int(hops)) => *hops,
            _ => 0,
        },
        skips_append: flag("skip_xff_append"),
        has_extensions: node.get("original_ip_detection_extensions").is_some(),
        jwt_authn: filters.find(verifies).map(|filter| filter.at),
    }
}

/// A wasm filter: weir's, if its policy looks like one or its name says so.
fn filter(node: &Node, around: &Around, found: &mut Vec<Found>) {
    let config = node.get("config").unwrap_or(node);
    let filename = config.at(&["vm_config", "code", "local", "filename"]);
    let names = [config.get("name"), config.get("root_id"), config.at(&["vm_config", "vm_id"]), filename];
    let is_named = names.into_iter().flatten().filter_map(Node::text).any(|name| name.contains("weir"))
        || around.filter.as_deref().is_some_and(|name| name.contains("weir"));
    let policy = configuration(config);
    let is_like = policy.as_ref().is_ok_and(|policy| policy.get("limiters").is_some() || policy.get("rules").is_some());
    if !is_named && !is_like {
        return;
    }
    let environment = config.at(&["vm_config", "environment_variables"]);
    let environment = |key| environment.and_then(|environment| environment.get(key));
    let mut variables: Vec<String> = Vec::new();
    let host_keys = environment("host_env_keys").map(Node::items).unwrap_or_default();
    variables.extend(host_keys.iter().filter_map(Node::text).map(str::to_owned));
    variables.extend(environment("key_values").into_iter().flat_map(Node::pairs).map(|(key, _)| key.text.clone()));
    let failure_policy = match (config.get("failure_policy"), config.get("fail_open")) {
        (Some(node), _) => node.text().map(str::to_owned),
        (None, Some(_)) => Some("FAIL_OPEN".to_owned()),
        (None, None) => None,
    };
    let filter = around.filter.as_deref().or(config.get("name").and_then(Node::text)).unwrap_or("without a name");
    let listener = around.listener.as_ref().map(|listener| format!("listener {listener}, ")).unwrap_or_default();
    let envoy = Envoy {
        at: config.at,
        failure_policy,
        variables,
        filter: around.filter.clone(),
        managers: around.manager.iter().cloned().collect(),
    };
    found.push(Found {
        name: Some(format!("{listener}filter {filter}")),
        at: policy.as_ref().map_or_else(|error| error.at, |policy| policy.at),
        policy,
        host: Host::Envoy(envoy),
    });
}

/// What a filter hands to the module.
fn configuration(config: &Node) -> Result<Node, NoDocument> {
    let no = |at: Place, message: &str| Err(NoDocument { at, message: message.to_owned() });
    let Some(node) = config.get("configuration") else {
        return no(config.at, "has no configuration; write the policy there, as a StringValue that holds JSON");
    };
    match (type_of(node), node.get("value")) {
        (Some("google.protobuf.StringValue"), Some(value)) => match value.embedded() {
            Err(error) if value.text().is_some() => Err(NoDocument {
                message: format!("{}; a StringValue is handed on as it is, and the module reads JSON", error.message),
                ..error
            }),
            read => read,
        },
        (Some("google.protobuf.Struct"), Some(value)) => Ok(value.clone()),
        (Some("google.protobuf.StringValue" | "google.protobuf.Struct"), None) => {
            no(node.at, "has no value; write the policy under value")
        }
        (Some(_), _) => no(node.at, "is of a type that cannot be read here; write a StringValue or a Struct"),
        (None, _) => no(node.at, "has no @type; write type.googleapis.com/google.protobuf.StringValue"),
    }
}

fn wasm_plugin(document: &Node, found: &mut Vec<Found>) {
    let name = |key| document.at(&["metadata", key]).and_then(Node::text);
    let namespace = name("namespace").map(|namespace| format!("{namespace}/")).unwrap_or_default();
    let name = format!("WasmPlugin {namespace}{}", name("name").unwrap_or("without a name"));
    let spec = document.get("spec");
    let config = spec.and_then(|spec| spec.get("pluginConfig"));
    let names = ["url", "pluginName"].map(|key| spec.and_then(|spec| spec.get(key)).and_then(Node::text));
    let is_named = name.contains("weir") || names.iter().flatten().any(|name| name.contains("weir"));
    let is_like = |policy: &&Node| policy.get("limiters").is_some() || policy.get("rules").is_some();
    if !is_named && config.filter(is_like).is_none() {
        return;
    }
    let policy = config.cloned().ok_or_else(|| NoDocument {
        at: spec.map_or(document.at, |spec| spec.at),
        message: "has no pluginConfig; write the policy there".to_owned(),
    });
    let variables = document.at(&["spec", "vmConfig", "env"]).map(Node::items).unwrap_or_default();
    let variables = variables.iter().filter_map(|variable| variable.get("name")?.text().map(str::to_owned));
    let fail_strategy = document.at(&["spec", "failStrategy"]).and_then(Node::text).map(str::to_owned);
    found.push(Found {
        name: Some(name),
        at: policy.as_ref().map_or_else(|error| error.at, |policy| policy.at),
        policy,
        host: Host::Istio(Istio {
            at: spec.map_or(document.at, |spec| spec.at),
            fail_strategy,
            variables: variables.collect(),
        }),
    });
}

impl Clusters {
    /// Adds those of a document.
    pub fn add(&mut self, document: &Node) {
        let named = |node: &Node| node.get("name").and_then(Node::text).map(str::to_owned);
        if let Some(bootstrap) = document.get("static_resources") {
            self.is_complete = true;
            self.names.extend(bootstrap.get("clusters").map(Node::items).unwrap_or_default().iter().filter_map(named));
        }
        self.is_open |= document.at(&["dynamic_resources", "cds_config"]).is_some();
        for resource in document.get("resources").map(Node::items).unwrap_or_default() {
            if type_of(resource).is_some_and(|name| name.ends_with(".Cluster")) {
                self.names.extend(named(resource));
            }
        }
    }

    /// Whether a cluster is surely missing.
    pub fn lack(&self, name: &str) -> bool {
        self.is_complete && !self.is_open && !self.names.iter().any(|known| known == name)
    }
}
