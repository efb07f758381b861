//! The request that is to be explained, from the command line and from files.
//!
//! Secrets come from files or the standard input, for a command line is seen by every user of a machine and kept by
//! shells.

use weir::explain::{Described, Undescribed};
use weir::policy::{Origin, Policy, Source};
use weir::tenant::Storage;

use crate::{Stop, input};

/// A request, and what of it stood on the command line.
#[derive(Debug)]
pub struct Given {
    pub request: Described,
    line_is_open: bool,
    open_headers: Vec<String>,
    open_properties: Vec<Vec<String>>,
}

/// What the arguments say: `@` and a file stand for its lines.
fn lines(argument: &str) -> Result<(Vec<String>, bool), Stop> {
    match argument.strip_prefix('@') {
        Some(file) => {
            let text = input::file(file)?;
            Ok((text.lines().filter(|line| !line.trim().is_empty()).map(str::to_owned).collect(), false))
        }
        None => Ok((vec![argument.to_owned()], true)),
    }
}

/// What to write instead of a line, which may be a secret; an address is none.
fn stop(undescribed: Undescribed, line: &str) -> Stop {
    Stop(match undescribed {
        Undescribed::RequestLine => {
            "--request: write a method and a path, such as --request 'POST /v1/reports/7/export'".to_owned()
        }
        Undescribed::Header => "-H: write name: value, such as -H 'x-user-id: acme'".to_owned(),
        Undescribed::Property => {
            "--property: write path=value, such as --property 'metadata.filter_metadata.\"envoy.filters.http.jwt_authn\"\
             .payload.sub=acme', quoting parts that hold dots"
                .to_owned()
        }
        Undescribed::Address => {
            format!("--peer: {line:?} is no address; write 203.0.113.9, 203.0.113.9:50000 or [2001:db8::1]:443")
        }
    })
}

impl Given {
    /// Reads a request line, headers, properties and the peer.
    pub fn read(line: &str, headers: &[String], properties: &[String], peer: Option<&str>) -> Result<Given, Stop> {
        let (line, line_is_open) = lines(line)?;
        let line = line.first().map(String::as_str).unwrap_or_default();
        let request = Described::new(line).map_err(|undescribed| stop(undescribed, line))?;
        let mut given = Given { request, line_is_open, open_headers: Vec::new(), open_properties: Vec::new() };
        if line_is_open {
            let names = [":method", ":path", ":authority"].into_iter();
            given.open_headers.extend(names.filter(|name| given.request.value(name).is_some()).map(str::to_owned));
        }
        for argument in headers {
            let (lines, is_open) = lines(argument)?;
            for line in lines {
                let name = given.request.header(&line).map_err(|undescribed| stop(undescribed, &line))?;
                given.open_headers.extend(is_open.then_some(name));
            }
        }
        for argument in properties {
            let (lines, is_open) = lines(argument)?;
            for line in lines {
                let path = given.request.property(&line).map_err(|undescribed| stop(undescribed, &line))?;
                given.open_properties.extend(is_open.then_some(path));
            }
        }
        if let Some(peer) = peer {
            given.request.address(peer).map_err(|undescribed| stop(undescribed, peer))?;
        }
        Ok(given)
    }

    /// Refuses values that a policy calls secret where they stood on the command line.
    pub fn refuse_open_secrets(&self, policy: &Policy) -> Result<(), Stop> {
        policy
            .rules
            .iter()
            .flat_map(|rule| rule.sources.iter().chain(&rule.tier_sources))
            .try_for_each(|source| self.refuse(source))
    }

    fn refuse(&self, source: &Source) -> Result<(), Stop> {
        let of_header = |name: &str| {
            (self.open_headers.iter().any(|open| open == name), format!("-H '{name}: ...'"), "-H @FILE or -H @-")
        };
        let (is_open, what, how) = match &source.origin {
            Origin::All(parts) => return parts.iter().try_for_each(|part| self.refuse(part)),
            _ if source.storage != Storage::Secret => return Ok(()),
            Origin::Header(name) => of_header(name),
            Origin::Bearer | Origin::BasicUser => of_header("authorization"),
            Origin::Cookie(_) => of_header("cookie"),
            Origin::Query(name) => {
                let names_it = self.text(":path").unwrap_or_default().contains(&format!("{name}="));
                (
                    self.line_is_open && names_it,
                    format!("the query parameter {name}"),
                    "--request @FILE or --request @-",
                )
            }
            Origin::Property(path, _) => {
                (self.open_properties.contains(path), format!("--property {}", path.join(".")), "--property @FILE")
            }
            _ => return Ok(()),
        };
        match is_open {
            true => Err(Stop(format!(
                "{what}: the policy calls this value secret, and other users of this machine can see a command line; \
                 put it into a file or the standard input: {how}"
            ))),
            false => Ok(()),
        }
    }

    fn text(&self, name: &str) -> Option<String> {
        self.request.value(name).map(|value| String::from_utf8_lossy(value).into_owned())
    }

    /// The method and the path as they were sent, the query left out where it may hold a secret.
    pub fn line(&self) -> String {
        let target = self.text(":path").or_else(|| self.text(":authority")).unwrap_or_default();
        let target = match (self.line_is_open, target.split_once('?')) {
            (false, Some((path, _))) => format!("{path}?..."),
            _ => target,
        };
        format!("{} {target}", self.text(":method").unwrap_or_default())
    }
}
