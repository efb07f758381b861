//! The request that is to be explained, from the command line and from files.
//!
//! Secrets come from files or the standard input, for a command line is seen by every user of a machine and kept by
//! shells. It must not know what a policy does with a value.

use std::net::{IpAddr, SocketAddr};

use weir::policy::{Kind, Origin, Policy, Source};
use weir::request::Request;
use weir::tenant::Storage;

use crate::{Stop, input};

/// A request, as the module would see it.
#[derive(Debug, Default)]
pub struct Given {
    headers: Vec<Header>,
    properties: Vec<Property>,
    /// The request line stood on the command line.
    line_is_open: bool,
}

#[derive(Debug)]
struct Header {
    name: String,
    value: Vec<u8>,
    /// It stood on the command line.
    is_open: bool,
}

#[derive(Debug)]
struct Property {
    path: Vec<String>,
    value: Vec<u8>,
    is_open: bool,
}

impl Request for Given {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.headers.iter().find(|header| header.name == name).map(|header| header.value.clone())
    }

    fn cookies(&self) -> Option<Vec<u8>> {
        let lines = self.headers.iter().filter(|header| header.name == "cookie");
        let lines: Vec<&[u8]> = lines.map(|header| header.value.as_slice()).collect();
        (!lines.is_empty()).then(|| lines.join(b"; ".as_slice()))
    }

    fn is_doubled(&self, name: &str) -> bool {
        self.headers.iter().filter(|header| header.name == name).count() > 1
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        let found =
            self.properties.iter().find(|property| property.path.iter().map(String::as_str).eq(path.iter().copied()));
        found.map(|property| property.value.clone())
    }
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

impl Given {
    /// Reads a request line, headers, properties and the peer.
    pub fn read(line: &str, headers: &[String], properties: &[String], peer: Option<&str>) -> Result<Given, Stop> {
        let mut given = Given::default();
        given.request_line(line)?;
        for argument in headers {
            let (lines, is_open) = lines(argument)?;
            for line in lines {
                given.headers.push(header(&line, is_open)?);
            }
        }
        for argument in properties {
            let (lines, is_open) = lines(argument)?;
            for line in lines {
                given.properties.push(property(&line, is_open)?);
            }
        }
        if let Some(peer) = peer {
            let path = vec!["source".to_owned(), "address".to_owned()];
            given.properties.push(Property { path, value: address(peer)?.into_bytes(), is_open: true });
        }
        Ok(given)
    }

    /// `POST /path`: the parts that HTTP/2 has as `:method`, `:path` and `:authority`.
    fn request_line(&mut self, argument: &str) -> Result<(), Stop> {
        let (lines, is_open) = lines(argument)?;
        self.line_is_open = is_open;
        let mut words = lines.first().map(|line| line.split_whitespace()).into_iter().flatten();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(Stop(
                "--request: write a method and a path, such as --request 'POST /v1/reports/7/export'".to_owned(),
            ));
        };
        let mut push = |name: &str, value: &str| {
            self.headers.push(Header { name: name.to_owned(), value: value.as_bytes().to_vec(), is_open });
        };
        push(":method", method);
        if method == "CONNECT" {
            push(":authority", target);
            return Ok(());
        }
        // The absolute form: proxies take the host out of it.
        let rest = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://"));
        match rest {
            Some(rest) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                let (host, path) = rest.split_at(end);
                push(":authority", host);
                let slash = if path.starts_with('/') { "" } else { "/" };
                push(":path", &format!("{slash}{path}"));
            }
            None => push(":path", target),
        }
        Ok(())
    }

    /// Makes of the properties' texts the bytes that a host gives for what the policy says they are. A text that is none
    /// stays one.
    pub fn typed(mut self, policy: &Policy) -> Given {
        let sources = policy.rules.iter().flat_map(|rule| rule.sources.iter().chain(&rule.tier_sources));
        let parts = sources.flat_map(|source| match &source.origin {
            Origin::All(parts) => parts.as_slice(),
            _ => std::slice::from_ref(source),
        });
        let mut kinds: Vec<(&[String], Kind)> = Vec::new();
        for part in parts {
            if let Origin::Property(path, kind @ (Kind::Number | Kind::Bool)) = &part.origin
                && !kinds.iter().any(|(known, _)| known == path)
            {
                kinds.push((path, *kind));
            }
        }
        for property in &mut self.properties {
            let kind = kinds.iter().find(|(path, _)| *path == property.path).map(|(_, kind)| *kind);
            let text = String::from_utf8_lossy(&property.value).into_owned();
            property.value = match (kind, text.trim()) {
                // Metadata has doubles only.
                (Some(Kind::Number), text) => match text.parse::<f64>() {
                    Ok(number) => number.to_le_bytes().to_vec(),
                    Err(_) => continue,
                },
                (Some(Kind::Bool), "true") => vec![1],
                (Some(Kind::Bool), "false") => vec![0],
                _ => continue,
            };
        }
        self
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
        let is_open = |name: &str| self.headers.iter().any(|header| header.is_open && header.name == name);
        let of_header = |name: &str| (is_open(name), format!("-H '{name}: ...'"), "-H @FILE or -H @-");
        let (is_open, what, how) = match &source.origin {
            Origin::All(parts) => return parts.iter().try_for_each(|part| self.refuse(part)),
            _ if source.storage != Storage::Secret => return Ok(()),
            Origin::Header(name) => of_header(name),
            Origin::Bearer | Origin::BasicUser => of_header("authorization"),
            Origin::Cookie(_) => of_header("cookie"),
            Origin::Query(name) => {
                let path = self.header(":path").unwrap_or_default();
                let names_it = String::from_utf8_lossy(&path).contains(&format!("{name}="));
                (
                    self.line_is_open && names_it,
                    format!("the query parameter {name}"),
                    "--request @FILE or --request @-",
                )
            }
            Origin::Property(path, _) => {
                let mut same = self.properties.iter().filter(|property| property.path == *path);
                (same.any(|property| property.is_open), format!("--property {}", path.join(".")), "--property @FILE")
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

    /// The method and the path as they were sent, the query left out where it may hold a secret.
    pub fn line(&self) -> String {
        let text = |name: &str| self.header(name).map(|value| String::from_utf8_lossy(&value).into_owned());
        let target = text(":path").or_else(|| text(":authority")).unwrap_or_default();
        let target = match (self.line_is_open, target.split_once('?')) {
            (false, Some((path, _))) => format!("{path}?..."),
            _ => target,
        };
        format!("{} {target}", text(":method").unwrap_or_default())
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|header| header.name == name)
    }
}

fn header(line: &str, is_open: bool) -> Result<Header, Stop> {
    // A name of HTTP/2 starts with a colon.
    let colon = line.char_indices().skip(1).find(|(_, letter)| *letter == ':').map(|(at, _)| at);
    let Some((name, value)) = colon.and_then(|colon| line.split_at_checked(colon)) else {
        // The line may be a secret.
        return Err(Stop("-H: write name: value, such as -H 'x-user-id: acme'".to_owned()));
    };
    let name = match name.trim().to_ascii_lowercase().as_str() {
        "host" => ":authority".to_owned(),
        name => name.to_owned(),
    };
    let value = value.strip_prefix(':').unwrap_or(value).trim().as_bytes().to_vec();
    Ok(Header { name, value, is_open })
}

/// `a.b."c.d"=value` or `["a", "b", "c.d"]=value`.
fn property(line: &str, is_open: bool) -> Result<Property, Stop> {
    let no = || {
        Stop(
            "--property: write path=value, such as --property 'metadata.filter_metadata.\"envoy.filters.http.jwt_authn\"\
             .payload.sub=acme', quoting parts that hold dots"
                .to_owned(),
        )
    };
    if line.starts_with('[') {
        let end = line.match_indices("]=").map(|(at, _)| at).find_map(|at| {
            let (list, value) = line.split_at_checked(at.saturating_add(1))?;
            Some((serde_json::from_str::<Vec<String>>(list).ok()?, value.strip_prefix('=')?))
        });
        let (path, value) = end.ok_or_else(no)?;
        return Ok(Property { path, value: value.as_bytes().to_vec(), is_open });
    }
    let (mut path, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars();
    for letter in letters.by_ref() {
        match letter {
            '"' => quoted = !quoted,
            '.' if !quoted => path.push(std::mem::take(&mut part)),
            '=' if !quoted => {
                path.push(std::mem::take(&mut part));
                let is_whole = path.iter().all(|part| !part.is_empty());
                let value = letters.as_str().as_bytes().to_vec();
                return if is_whole { Ok(Property { path, value, is_open }) } else { Err(no()) };
            }
            _ => part.push(letter),
        }
    }
    Err(no())
}

/// An address with a port, as hosts tell it.
fn address(text: &str) -> Result<String, Stop> {
    if let Ok(address) = text.parse::<SocketAddr>() {
        return Ok(address.to_string());
    }
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    match bare.parse::<IpAddr>() {
        Ok(address) => Ok(SocketAddr::new(address, 0).to_string()),
        Err(_) => Err(Stop(format!(
            "--peer: {text:?} is no address; write 203.0.113.9, 203.0.113.9:50000 or [2001:db8::1]:443"
        ))),
    }
}
