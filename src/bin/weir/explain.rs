//! `weir explain`: what a policy makes of one request, by the code that the module runs.
//!
//! The library explains; this reads files and the environment for it, and tells.

use clap::Args;
use weir::explain::{Explanation, Note, Subject};

use crate::check::{Format, named_variables};
use crate::document::Node;
use crate::found::{Envoy, Found, Host, choose, policies};
use crate::given::Given;
use crate::parse::read;
use crate::render::refused;
use crate::report::Report;
use crate::told::Told;
use crate::{Output, Stop, input};

const AFTER: &str = "\
A value that the policy calls secret, and authorization where it is a source, is taken from a file or the standard input \
alone: -H @FILE, -H @-. Secrets are told as their hash. The key of the hash comes from the environment variable that the \
policy names, or from --secret-file.

Exit code: 0 explained, 1 the policy has errors, 2 wrong usage, or a file cannot be read.";

/// Explain what a policy makes of a request: path, class, tenants, limits, Redis keys, and what the client gets.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// A file with a policy, as for weir check
    #[arg(value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    file: String,

    /// Method and path, such as 'POST /v1/reports/7/export'; @FILE reads them from a file
    #[arg(long, value_name = "REQUEST")]
    request: String,

    /// A header, such as 'x-user-id: acme'; @FILE reads lines of headers, @- the standard input
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,

    /// What the host knows, such as 'metadata.filter_metadata."envoy.filters.http.jwt_authn".payload.sub=acme'; @FILE
    /// reads lines of them
    #[arg(long = "property", value_name = "PATH=VALUE")]
    properties: Vec<String>,

    /// The client's address, as the host settles on it
    #[arg(long, value_name = "IP[:PORT]")]
    peer: Option<String>,

    /// Which policy of the file: its number, from 1, or a part of its name
    #[arg(long, value_name = "POLICY")]
    policy: Option<String>,

    /// A file with the key of the hash, in place of the environment variable; - is the standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    secret_file: Option<String>,

    /// How to tell it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,
}

pub fn run(options: &Options) -> Result<Output, Stop> {
    options.reads_stdin_once()?;
    let text = input::file(&options.file)?;
    let nodes = read(&text, options.file.ends_with(".json"))
        .map_err(|error| Stop(format!("{}:{}:{}: {}", options.file, error.at.line, error.at.column, error.message)))?;
    let found = choose(&options.file, nodes.iter().flat_map(policies).collect(), options.policy.as_deref())?;
    let node = match &found.policy {
        Ok(node) => node,
        Err(error) => return Ok(refused(&options.file, &found, vec![Report::error(error.at, error.message.clone())])),
    };
    let subject = match Subject::from_tree(node.tree(), &options.environment(node)?) {
        Ok(subject) => subject,
        Err(problems) => {
            let problems = problems.iter().map(|problem| Report::of(problem, node)).collect();
            return Ok(refused(&options.file, &found, problems));
        }
    };
    let given = Given::read(&options.request, &options.headers, &options.properties, options.peer.as_deref())?;
    given.refuse_open_secrets(subject.policy())?;
    let explanation = subject.explain(&given.request);
    let told = Told {
        request: given.line(),
        policy: match &found.name {
            Some(name) => format!("{}, {name}", options.file),
            None => options.file.clone(),
        },
        notes: options.notes(&explanation, node, &found),
        explanation,
        node,
    };
    let text = match options.format {
        Format::Text => told.text(),
        Format::Json => told.json(),
    };
    Ok(Output::fine(text))
}

impl Options {
    fn reads_stdin_once(&self) -> Result<(), Stop> {
        let arguments = self.headers.iter().chain(&self.properties).chain([&self.request]);
        let from_stdin = arguments.filter(|argument| *argument == "@-").count();
        let files = [Some(&self.file), self.secret_file.as_ref()];
        let from_stdin = files.into_iter().flatten().filter(|file| *file == "-").count().saturating_add(from_stdin);
        match from_stdin {
            0 | 1 => Ok(()),
            _ => Err(Stop("the standard input can be read once; write one - or @- at most".to_owned())),
        }
    }

    /// The environment, with the file of a secret in place of the variable that the policy names.
    fn environment(&self, node: &Node) -> Result<impl Fn(&str) -> Option<String>, Stop> {
        let secret = self.secret_file.as_deref().map(input::file).transpose()?;
        let secret =
            secret.map(|secret| secret.strip_suffix('\n').unwrap_or(&secret).trim_end_matches('\r').to_owned());
        let variable = node.get("hash_secret_env").and_then(Node::text).map(str::to_owned);
        Ok(move |name: &str| match (&secret, Some(name) == variable.as_deref()) {
            (Some(secret), true) => Some(secret.clone()),
            _ => std::env::var(name).ok().filter(|value| !value.is_empty()),
        })
    }

    /// What one should know, the notes on the host around the policy among them.
    fn notes(&self, explanation: &Explanation, node: &Node, found: &Found) -> Vec<String> {
        let is_of_hashes = |note: &&Note| matches!(note, Note::HashKeyUnknown(_));
        let (of_hashes, others): (Vec<&Note>, Vec<&Note>) = explanation.notes.iter().partition(is_of_hashes);
        let say = |notes: Vec<&Note>| notes.into_iter().filter_map(|note| self.said(note, found)).collect();
        [say(of_hashes), unset_variables(node, found), say(others)].concat()
    }

    /// A note in words of the command line.
    fn said(&self, note: &Note, found: &Found) -> Option<String> {
        let manager = match &found.host {
            Host::Envoy(Envoy { managers, .. }) => managers.first(),
            _ => None,
        };
        Some(match (note, manager) {
            (Note::HashKeyUnknown(name), _) => format!(
                "{name} is not set here, so hashes cannot be told, nor whether tier.tenants, overrides or limiter.tenants names \
                 such a tenant; set it, or use --secret-file"
            ),
            (Note::AddressMissing, _) => "the policy reads the client's address: give it with --peer".to_owned(),
            // It is not --peer, but the very property.
            (Note::AddressTaken, _) if self.peer.is_none() => return None,
            (Note::AddressTaken, None) => "--peer is taken for the address that the host settles on".to_owned(),
            (Note::AddressTaken, Some(manager)) if manager.use_remote_address => return None,
            (Note::AddressTaken, Some(manager)) => format!(
                "this Envoy would take the address from x-forwarded-for, not from the peer: use_remote_address is not set \
                 (line {})",
                manager.at.line
            ),
            (Note::Window, _) => {
                "a window is told as of its beginning: x-ratelimit-reset, t and retry-after are until it ends, so less \
                 by what has passed of it"
                    .to_owned()
            }
            (Note::Jitter(thousandths), _) => {
                let percent = f64::from(*thousandths) / 10.0;
                format!("retry-after of a limited request is longer at random by up to {percent} %, in whole seconds")
            }
            (Note::ChainTaken, _) => {
                "x-forwarded-for is taken as the module sees it, after the host has added to it".to_owned()
            }
        })
    }
}

/// The variables that a policy names and the host around it does not hand on.
fn unset_variables(node: &Node, found: &Found) -> Vec<String> {
    let given = match &found.host {
        Host::Envoy(envoy) => &envoy.variables,
        Host::Istio(istio) => &istio.variables,
        Host::File => return Vec::new(),
    };
    let named = named_variables(node).into_iter().map(|(_, (_, name))| name);
    let unset = named.filter(|name| !given.iter().any(|known| known == name));
    unset.map(|name| format!("{name} is not handed to the module by this configuration: see weir check")).collect()
}
