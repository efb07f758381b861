//! `weir top`: who is refused most and who comes most, as proxies tell it at the `top_path` of their policies.
//!
//! Proxies are asked all at once, each over a connection of its own. The secret goes to the URLs that the user names and
//! nowhere else: redirects and proxies of the environment are not followed.

use std::time::Duration;

use clap::Args;
use ureq::http::header::{CONTENT_TYPE, LOCATION};
use ureq::http::{HeaderName, HeaderValue, StatusCode, Uri};

use crate::check::Format;
use crate::ranks::{Told, View, read};
use crate::{Output, Stop, input, screen};

/// How long a proxy may take, all in all.
const PATIENCE: Duration = Duration::from_secs(2);

/// The longest answer that is read, in bytes: several times what 16 rules of the longest tenants make.
const LONGEST: u64 = 4 << 20;

const SECRET: &str = "WEIR_DEBUG_SECRET";

const AFTER: &str = "\
A rate is what a proxy has counted in its last minutes, by their length; those of several proxies are added. A proxy \
counts 64 tenants of a rule, so a rate may have come in part from others: (at least N) tells what surely has not.

The secret is the one that the policy names by observe.secret_env. It is taken from a file, from the standard input, or \
from the environment variable WEIR_DEBUG_SECRET, never from the command line, and sent without TLS: https is not spoken. \
Where a proxy has no listener without TLS, give it one on a loopback address with the same policy and the same vm_id.

Exit code: 0 at least one proxy has told it, or it was watched on a terminal until Ctrl-C; 2 none has, or wrong usage.";

/// Show who is refused most and who comes most, by rule, as proxies tell it
///
/// On a terminal it is drawn anew until Ctrl-C; into a pipe, and with --once or --format json, it is told once.
#[derive(Debug, Args)]
#[command(after_help = AFTER)]
pub struct Options {
    /// Where proxies tell it: their address and the policy's observe.top_path, such as http://127.0.0.1:8080/.weir/top
    #[arg(required = true, value_name = "URL", value_hint = clap::ValueHint::Url)]
    urls: Vec<String>,

    /// How often to ask, such as 500ms, 1s or 1m; 100ms at least
    #[arg(long, value_name = "TIME", default_value = "1s", value_parser = duration)]
    every: Duration,

    /// Tell it once, on a terminal too
    #[arg(long)]
    once: bool,

    /// This rule alone
    #[arg(long, value_name = "NAME")]
    rule: Option<String>,

    /// How many tenants to show of each list
    #[arg(long, value_name = "N", default_value_t = 10)]
    lines: usize,

    /// How to tell it
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    format: Format,

    /// A file with the secret, in place of the environment variable; - is the standard input
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    secret_file: Option<String>,

    /// The header that the secret is sent in: the policy's observe.debug_header
    #[arg(long, value_name = "NAME", default_value = "x-weir-debug")]
    header: HeaderName,
}

pub fn run(options: &Options) -> Result<Output, Stop> {
    let proxies = Proxies::of(options)?;
    let rule = options.rule.as_deref();
    if options.format == Format::Text && !options.once && screen::is_there() {
        screen::show(options.every, || Ok(proxies.look(rule)?.text(options.lines)))?;
        return Ok(Output::fine(String::new()));
    }
    let view = proxies.look(rule)?;
    if view.answered == 0 {
        let failures: String = view.failures.iter().map(|(url, why)| format!("\n  {url}: {why}")).collect();
        return Err(Stop(format!("no proxy has told who comes{failures}")));
    }
    let text = match options.format {
        Format::Text => view.text(options.lines),
        Format::Json => view.json(options.lines),
    };
    Ok(Output::fine(text))
}

/// Whom to ask, and how.
struct Proxies {
    /// As the user wrote them, and as they are asked.
    urls: Vec<(String, Uri)>,
    agent: ureq::Agent,
    header: HeaderName,
    secret: HeaderValue,
}

impl Proxies {
    fn of(options: &Options) -> Result<Proxies, Stop> {
        let mut urls: Vec<(String, Uri)> = Vec::new();
        for url in &options.urls {
            let uri = uri(url)?;
            if urls.iter().any(|(_, known)| *known == uri) {
                return Err(Stop(format!("{url}: stands twice, and its requests would count twice")));
            }
            urls.push((url.clone(), uri));
        }
        let config = ureq::Agent::config_builder()
            .timeout_global(Some(PATIENCE))
            .max_redirects(0)
            .max_redirects_will_error(false)
            .http_status_as_error(false)
            .proxy(None)
            // A connection that is kept would keep a listener that is being replaced.
            .max_idle_connections(0)
            .user_agent(concat!("weir/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Proxies { urls, agent: config.into(), header: options.header.clone(), secret: secret(options)? })
    }

    /// What all of them tell now.
    fn look(&self, rule: Option<&str>) -> Result<View, Stop> {
        let told: Vec<Result<Told, String>> = std::thread::scope(|scope| {
            let asked: Vec<_> = self.urls.iter().map(|(_, uri)| scope.spawn(|| self.ask(uri))).collect();
            asked.into_iter().map(|asked| asked.join().unwrap_or_else(|_| Err("was not asked".to_owned()))).collect()
        });
        let view = View::of(self.urls.iter().map(|(url, _)| url.clone()).zip(told).collect());
        let Some(wanted) = rule else {
            return Ok(view);
        };
        let names: Vec<&str> = view.rules.iter().map(|rule| rule.name.as_str()).collect();
        if view.answered > 0 && !names.contains(&wanted) {
            let names = names.join(", ");
            return Err(Stop(format!("--rule: no policy in force has a rule {wanted:?}; there are: {names}")));
        }
        Ok(view.only(wanted))
    }

    /// What one of them tells, or why it does not.
    fn ask(&self, uri: &Uri) -> Result<Told, String> {
        let request = self.agent.get(uri.clone()).header(&self.header, &self.secret);
        let mut response = request.call().map_err(|error| reason(&error))?;
        let status = response.status();
        let text =
            |name| response.headers().get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let (kind, location) = (text(CONTENT_TYPE), text(LOCATION));
        if let (true, Some(location)) = (status.is_redirection(), location) {
            let status = status.as_u16();
            return Err(format!(
                "redirects ({status}) to {location}, which is not followed; write the proxy's own URL"
            ));
        }
        let body = response.body_mut().with_config().limit(LONGEST).read_to_vec().map_err(|error| reason(&error))?;
        read(&body).filter(|_| status == StatusCode::OK).ok_or_else(|| {
            let (status, kind) = (status.as_u16(), kind.as_deref().unwrap_or("no content-type"));
            format!(
                "answers as to anybody ({status}, {kind}); see whether the path, the secret and --header are those of \
                 observe in the policy that it has in force"
            )
        })
    }
}

fn reason(error: &ureq::Error) -> String {
    match error {
        ureq::Error::Timeout(_) => format!("has not answered within {} s", PATIENCE.as_secs()),
        ureq::Error::HostNotFound => "has a name that is not known".to_owned(),
        ureq::Error::Io(error) => format!("cannot be asked: {error}"),
        error => format!("cannot be understood: {error}"),
    }
}

fn uri(url: &str) -> Result<Uri, Stop> {
    const SUCH_AS: &str = "write one such as http://127.0.0.1:8080/.weir/top";
    let no = |why: &str| Stop(format!("{url}: {why}"));
    let uri: Uri = url.parse().map_err(|_| no(&format!("is no URL; {SUCH_AS}")))?;
    if uri.authority().is_some_and(|authority| authority.as_str().contains('@')) {
        // It may hold a password.
        return Err(Stop(format!("a URL holds a user, which weir does not ask for; {SUCH_AS}")));
    }
    match (uri.scheme_str(), uri.path()) {
        (Some("https"), _) => {
            Err(no("https is not spoken; ask a listener without TLS that has the same policy and the same vm_id"))
        }
        (Some("http"), "/") => Err(no("has no path; add the observe.top_path of the policy, such as /.weir/top")),
        (Some("http"), _) => Ok(uri),
        _ => Err(no(&format!("is no URL of a proxy; {SUCH_AS}"))),
    }
}

fn secret(options: &Options) -> Result<HeaderValue, Stop> {
    let (place, secret) = match &options.secret_file {
        Some(file) => (if file == "-" { "<stdin>" } else { file }, Some(input::file(file)?)),
        None => (SECRET, std::env::var(SECRET).ok()),
    };
    let secret = secret.unwrap_or_default();
    let secret = secret.strip_suffix('\n').unwrap_or(&secret).trim_end_matches('\r');
    if secret.is_empty() {
        return Err(Stop(format!(
            "{place}: holds no secret; set {SECRET} to the one that the policy names by observe.secret_env, or write it \
             into a file for --secret-file"
        )));
    }
    HeaderValue::from_str(secret)
        .map_err(|_| Stop(format!("{place}: holds what no header can; a secret is one line of printable ASCII")))
}

/// An integer and a unit.
fn duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let parsed = text.split_at_checked(end).and_then(|(number, unit)| {
        let number: u64 = number.parse().ok()?;
        let unit = match unit {
            "ms" => 1,
            "s" => 1000,
            "m" => 60_000,
            _ => return None,
        };
        number.checked_mul(unit).filter(|ms| (100..=3_600_000).contains(ms))
    });
    parsed.map(Duration::from_millis).ok_or_else(|| "write a time from 100ms to 60m, such as 1s".to_owned())
}
