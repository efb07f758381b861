//! `weir check`: every error and warning of the policies in some files.

use clap::{Args, ValueEnum};
use weir::policy::{Policy, Tree};

use crate::document::{Node, Place};
use crate::found::{Clusters, Discovered, Found, Host, LOOKED_FOR, policies_and_discovered};
use crate::parse::read;
use crate::report::{Located, Report, Severity, json};
use crate::{Outcome, Output, Stop, input, warnings};

/// How something is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people.
    #[default]
    Text,
    /// For programs.
    Json,
}

const AFTER: &str = "\
Exit code: 0 nothing is wrong (there may be warnings), 1 something is, or with --deny-warnings there are warnings, 2 wrong \
usage, or a file cannot be read.

With --format json: an array of objects with file, line and column (from 1), severity (error, warning or note), policy \
(which one of the file, or null), path (in the policy, or null) and message.";

/// Check policies: all errors and warnings, with file, line and path.
///
/// A file holds a policy in YAML or JSON, or an Envoy configuration (a bootstrap, or a file of listeners or extension
/// configurations) or Istio WasmPlugins with policies in them; several documents may stand in one file. Give an Envoy's
/// files together, so that what one of them says is known for the others.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// Files to check; - is the standard input
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<String>,

    /// How to tell what was found
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,

    /// Exit with 1 where there are warnings
    #[arg(long)]
    deny_warnings: bool,

    /// Check that the environment variables that a policy names are set here; else they are taken to be set
    #[arg(long)]
    check_environment: bool,

    /// Add a note with the fingerprint of each policy without errors: the number that a proxy with this policy in force
    /// shows as the gauge weir_policy
    #[arg(long)]
    fingerprints: bool,
}

pub fn run(options: &Options) -> Result<Output, Stop> {
    let mut all: Vec<Located> = Vec::new();
    let documents = documents(&options.files, &mut all)?;
    let mut clusters = Clusters::default();
    documents.iter().flat_map(|(_, nodes)| nodes).for_each(|node| clusters.add(node));
    let of_files = found(&documents, &mut all);
    check_all(&of_files, &clusters, options, &mut all);
    let count = of_files.iter().fold(0_usize, |count, (_, of_file)| count.saturating_add(of_file.len()));
    Ok(told(&all, count, options))
}

/// The documents of some files. What cannot be read as one is told.
fn documents<'f>(files: &'f [String], all: &mut Vec<Located>) -> Result<Vec<(&'f String, Vec<Node>)>, Stop> {
    let mut documents = Vec::new();
    for file in files {
        let text = input::file(file)?;
        match read(&text, file.ends_with(".json")) {
            Ok(nodes) => documents.push((file, nodes)),
            Err(error) => all.push(located(file, None, Report::error(error.at, error.message))),
        }
    }
    Ok(documents)
}

/// The policies of some files, each with what the other files say of it. What is missing is told.
fn found<'f>(documents: &[(&'f String, Vec<Node>)], all: &mut Vec<Located>) -> Vec<(&'f String, Vec<Found>)> {
    let mut of_files: Vec<(&String, Vec<Found>)> = Vec::new();
    let mut discovered = Vec::new();
    for (document, (file, nodes)) in documents.iter().enumerate() {
        let mut of_file = Vec::new();
        for node in nodes {
            let (found, of_node) = policies_and_discovered(document, node);
            of_file.extend(found);
            discovered.extend(of_node);
        }
        let discovers = discovered.iter().any(|of: &Discovered| of.manager.document == document);
        if of_file.is_empty() && !discovers && !nodes.iter().any(is_of_clusters) {
            all.push(located(file, None, Report::error(Place { line: 1, column: 1 }, LOOKED_FOR.to_owned())));
        }
        of_files.push((file, of_file));
    }
    for of in &discovered {
        let is_here =
            |found: &Found| matches!(&found.host, Host::Envoy(envoy) if envoy.filter.as_ref() == Some(&of.name));
        if !of_files.iter().any(|(_, of_file)| of_file.iter().any(is_here))
            && let Some((file, _)) = of_files.get(of.manager.document)
        {
            let message = format!(
                "filter {} is discovered, and its configuration is in none of these files; give the file of it, too",
                of.name
            );
            let report = Report { at: of.at, severity: Severity::Warning, path: None, message };
            all.push(located(file, None, report));
        }
    }
    let all_found = of_files.iter_mut().flat_map(|(_, of_file)| of_file);
    all_found.for_each(|found| found.discovered_by(&discovered));
    of_files
}

/// Checks all policies, each after the ones before it.
fn check_all(of_files: &[(&String, Vec<Found>)], clusters: &Clusters, options: &Options, all: &mut Vec<Located>) {
    let mut before: Vec<(&Found, Policy)> = Vec::new();
    for (file, of_file) in of_files {
        for found in of_file {
            let (policy, mut reports) = check(found, clusters, options);
            if let Some(policy) = policy {
                let others = before.iter().map(|(other, of_other)| (*other, of_other));
                reports.extend(others.flat_map(|other| warnings::counted_twice(other, (found, &policy))));
                before.push((found, policy));
            }
            let mut of_policy: Vec<_> =
                reports.into_iter().map(|report| located(file, found.name.clone(), report)).collect();
            of_policy.sort_by_key(|located| located.report.at);
            all.extend(of_policy);
        }
    }
}

/// All that was found, and what it comes to.
fn told(all: &[Located], count: usize, options: &Options) -> Output {
    let number = |severity| all.iter().filter(|located| located.report.severity == severity).count();
    let (errors, warnings) = (number(Severity::Error), number(Severity::Warning));
    let failed = errors > 0 || (options.deny_warnings && warnings > 0);
    let text = match options.format {
        Format::Json => json(&Tree::List(all.iter().map(Located::json).collect())),
        Format::Text => {
            let lines: String = all.iter().map(Located::line).collect();
            let policies = many(count, "policy", "policies");
            lines + &format!("{policies}: {}, {}\n", many_or_no(errors, "error"), many_or_no(warnings, "warning"))
        }
    };
    Output { text, warnings: Vec::new(), outcome: if failed { Outcome::Found } else { Outcome::Fine } }
}

/// Whether a document has its place beside those with policies: what a bootstrap says of clusters is used.
fn is_of_clusters(document: &Node) -> bool {
    document.get("static_resources").is_some() || document.get("dynamic_resources").is_some()
}

fn located(file: &str, policy: Option<String>, report: Report) -> Located {
    let file = if file == "-" { "<stdin>" } else { file };
    Located { file: file.to_owned(), policy, report }
}

fn many(count: usize, one: &str, several: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {several}") }
}

fn many_or_no(count: usize, word: &str) -> String {
    if count == 0 { format!("no {word}s") } else { many(count, word, &format!("{word}s")) }
}

/// Checks one policy. Gives it, too, if it is valid.
fn check(found: &Found, clusters: &Clusters, options: &Options) -> (Option<Policy>, Vec<Report>) {
    let real = options.check_environment;
    let mut reports = warnings::of_host(&found.host);
    let node = match &found.policy {
        Ok(node) => node,
        Err(error) => {
            reports.push(Report::error(error.at, error.message.clone()));
            return (None, reports);
        }
    };
    let decoded = Policy::from_tree(&node.tree(), &|name| variable(name, real));
    match &decoded {
        Ok(policy) => {
            reports.extend(warnings::of(policy, node, &found.host, clusters));
            if options.fingerprints {
                let message = format!("fingerprint {}", policy.fingerprint);
                reports.push(Report { at: found.at, severity: Severity::Note, path: None, message });
            }
        }
        Err(problems) => reports.extend(problems.iter().map(|problem| Report::of(problem, node))),
    }
    reports.extend(variables(node, &found.host, real));
    (decoded.ok(), reports)
}

/// The value of a variable, or, where the machine is not to be asked, one that stands for it.
fn variable(name: &str, real: bool) -> Option<String> {
    if real { std::env::var(name).ok() } else { Some("set".to_owned()) }
}

/// What is to be said of the environment variables that a policy names.
fn variables(node: &Node, host: &Host, real: bool) -> Vec<Report> {
    let mut reports = Vec::new();
    for (path, name) in named_variables(node) {
        let (given, how) = match host {
            Host::File => (None, ""),
            Host::Envoy(envoy) => (Some(&envoy.variables), "vm_config.environment_variables.host_env_keys"),
            Host::Istio(istio) => (Some(&istio.variables), "vmConfig.env, as {name: NAME, valueFrom: HOST}"),
        };
        let is_given = given.is_none_or(|given| given.iter().any(|known| known == name.1));
        if !is_given {
            let message = format!(
                "{:?} is not handed to the module, which refuses the policy without it; add it to {how}",
                name.1
            );
            reports.push(Report { at: name.0, severity: Severity::Error, path: Some(path), message });
        } else if !real {
            let message =
                format!("{:?} is taken to be set where the proxy runs; --check-environment looks for it here", name.1);
            reports.push(Report { at: name.0, severity: Severity::Note, path: Some(path), message });
        }
    }
    reports
}

/// The variables that a policy names: the path of each field, where it stands, and what it says.
pub fn named_variables(node: &Node) -> Vec<(String, (Place, &str))> {
    let limiters = node.get("limiters").map(Node::pairs).unwrap_or_default().iter();
    let of_limiters =
        limiters.map(|(key, limiter)| (format!("limiters.{}.auth_env", key.text), limiter.get("auth_env")));
    std::iter::once(("hash_secret_env".to_owned(), node.get("hash_secret_env")))
        .chain(of_limiters)
        .chain([("observe.secret_env".to_owned(), node.at(&["observe", "secret_env"]))])
        .filter_map(|(path, field)| field.and_then(|field| Some((path, (field.at, field.text()?)))))
        .collect()
}
