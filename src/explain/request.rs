//! A request as somebody describes it: lines of text, as people and pages write them.
//!
//! It must not know which command or field a line comes from, nor what a policy makes of a value.

use std::net::{IpAddr, SocketAddr};

use crate::policy::{Kind, Origin, Policy};
use crate::request::Request;

/// A request as somebody describes it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Described {
    /// By lower-case names, `:method`, `:path` and `:authority` among them.
    headers: Vec<(String, Vec<u8>)>,
    /// By their paths, as texts.
    properties: Vec<(Vec<String>, String)>,
}

/// Why a line describes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Undescribed {
    /// No method and path, such as `POST /v1/reports/7/export`.
    RequestLine,
    /// No name and value, such as `x-user-id: acme`.
    Header,
    /// No path and value, such as `metadata.filter_metadata."envoy.filters.http.jwt_authn".payload.sub=acme`.
    Property,
    /// No address, such as `203.0.113.9`, `203.0.113.9:50000` or `[2001:db8::1]:443`.
    Address,
}

/// Where hosts tell the client's address.
const ADDRESS: [&str; 2] = ["source", "address"];

impl Described {
    /// A request of this request line: `POST /path`, `GET https://host/path` or `CONNECT host:port`.
    ///
    /// # Errors
    /// [`Undescribed::RequestLine`].
    pub fn new(line: &str) -> Result<Described, Undescribed> {
        let mut words = line.split_whitespace();
        let (Some(method), Some(target)) = (words.next(), words.next()) else {
            return Err(Undescribed::RequestLine);
        };
        let mut described = Described::default();
        let mut push = |name: &str, value: &str| described.headers.push((name.to_owned(), value.as_bytes().to_vec()));
        push(":method", method);
        // The absolute form: proxies take the host out of it.
        let rest = target.strip_prefix("https://").or_else(|| target.strip_prefix("http://"));
        match rest {
            _ if method == "CONNECT" => push(":authority", target),
            Some(rest) => {
                let end = rest.find(['/', '?']).unwrap_or(rest.len());
                let (host, path) = rest.split_at(end);
                push(":authority", host);
                let slash = if path.starts_with('/') { "" } else { "/" };
                push(":path", &format!("{slash}{path}"));
            }
            None => push(":path", target),
        }
        Ok(described)
    }

    /// Adds a header, `name: value`, and gives its name as the module sees it.
    ///
    /// # Errors
    /// [`Undescribed::Header`].
    pub fn header(&mut self, line: &str) -> Result<String, Undescribed> {
        // A name of HTTP/2 starts with a colon.
        let colon = line.char_indices().skip(1).find(|(_, letter)| *letter == ':').map(|(at, _)| at);
        let (name, value) = colon.and_then(|colon| line.split_at_checked(colon)).ok_or(Undescribed::Header)?;
        let name = match name.trim().to_ascii_lowercase().as_str() {
            "host" => ":authority".to_owned(),
            name => name.to_owned(),
        };
        let value = value.strip_prefix(':').unwrap_or(value).trim().as_bytes().to_vec();
        self.headers.push((name.clone(), value));
        Ok(name)
    }

    /// Adds something that the host knows, `a.b."c.d"=value` or `["a", "b", "c.d"]=value`, and gives its path.
    ///
    /// # Errors
    /// [`Undescribed::Property`].
    pub fn property(&mut self, line: &str) -> Result<Vec<String>, Undescribed> {
        let parsed = if line.starts_with('[') { listed_property(line) } else { dotted_property(line) };
        let (path, value) = parsed.ok_or(Undescribed::Property)?;
        self.properties.push((path.clone(), value.to_owned()));
        Ok(path)
    }

    /// Adds the client's address, as the host settles on it, with or without a port.
    ///
    /// # Errors
    /// [`Undescribed::Address`].
    pub fn address(&mut self, text: &str) -> Result<(), Undescribed> {
        let address = match text.parse::<SocketAddr>() {
            Ok(address) => address,
            Err(_) => {
                let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
                SocketAddr::new(bare.parse::<IpAddr>().map_err(|_| Undescribed::Address)?, 0)
            }
        };
        // With a port, as hosts tell it.
        self.properties.push((ADDRESS.map(str::to_owned).to_vec(), address.to_string()));
        Ok(())
    }

    /// The first value of a header, by its lower-case name.
    pub fn value(&self, name: &str) -> Option<&[u8]> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_slice())
    }
}

/// A property whose path is a list of JSON.
fn listed_property(line: &str) -> Option<(Vec<String>, &str)> {
    line.match_indices("]=").map(|(at, _)| at).find_map(|at| {
        let (list, value) = line.split_at_checked(at.saturating_add(1))?;
        Some((serde_json::from_str::<Vec<String>>(list).ok()?, value.strip_prefix('=')?))
    })
}

/// A property whose path has dots between its parts, and quotes around parts that hold dots.
fn dotted_property(line: &str) -> Option<(Vec<String>, &str)> {
    let (mut path, mut part, mut quoted) = (Vec::new(), String::new(), false);
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        match letter {
            '"' => quoted = !quoted,
            '.' if !quoted => path.push(std::mem::take(&mut part)),
            '=' if !quoted => {
                path.push(part);
                let is_whole = path.iter().all(|part| !part.is_empty());
                return is_whole.then_some((path, letters.as_str()));
            }
            _ => part.push(letter),
        }
    }
    None
}

/// A request as it arrives at the module: properties are what a host gives for what the policy says they are.
#[derive(Debug)]
pub(super) struct Arrived {
    headers: Vec<(String, Vec<u8>)>,
    properties: Vec<(Vec<String>, Vec<u8>)>,
}

impl Arrived {
    pub fn new(described: &Described, policy: &Policy) -> Arrived {
        let properties = described.properties.iter().map(|(path, text)| {
            let value = typed(text, kind_of(path, policy)).unwrap_or_else(|| text.clone().into_bytes());
            (path.clone(), value)
        });
        Arrived { headers: described.headers.clone(), properties: properties.collect() }
    }

    pub fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(known, _)| known == name)
    }

    pub fn has_address(&self) -> bool {
        self.property(&ADDRESS).is_some()
    }
}

impl Request for Arrived {
    fn header(&self, name: &str) -> Option<Vec<u8>> {
        self.headers.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone())
    }

    fn cookies(&self) -> Option<Vec<u8>> {
        let lines = self.headers.iter().filter(|(name, _)| name == "cookie");
        let lines: Vec<&[u8]> = lines.map(|(_, value)| value.as_slice()).collect();
        (!lines.is_empty()).then(|| lines.join(b"; ".as_slice()))
    }

    fn is_doubled(&self, name: &str) -> bool {
        self.headers.iter().filter(|(known, _)| known == name).count() > 1
    }

    fn property(&self, path: &[&str]) -> Option<Vec<u8>> {
        let is_it = |known: &Vec<String>| known.iter().map(String::as_str).eq(path.iter().copied());
        self.properties.iter().find(|(known, _)| is_it(known)).map(|(_, value)| value.clone())
    }
}

/// What a policy says a property is: the first of its sources that is a number or a boolean.
fn kind_of(path: &[String], policy: &Policy) -> Option<Kind> {
    let sources = policy.rules.iter().flat_map(|rule| rule.sources.iter().chain(&rule.tier_sources));
    let mut parts = sources.flat_map(|source| match &source.origin {
        Origin::All(parts) => parts.as_slice(),
        _ => std::slice::from_ref(source),
    });
    parts.find_map(|part| match &part.origin {
        Origin::Property(known, kind @ (Kind::Number | Kind::Bool)) if known == path => Some(*kind),
        _ => None,
    })
}

/// The bytes that a host gives for a text of this kind; None where it is the text itself, or none of the kind.
fn typed(text: &str, kind: Option<Kind>) -> Option<Vec<u8>> {
    match (kind?, text.trim()) {
        // Metadata has doubles only.
        (Kind::Number, text) => text.parse::<f64>().ok().map(|number| number.to_le_bytes().to_vec()),
        (Kind::Bool, "true") => Some(vec![1]),
        (Kind::Bool, "false") => Some(vec![0]),
        _ => None,
    }
}
