//! `response`: what clients see.

use super::language::{FAMILIES, RESETS, RESPONSE, UPSTREAM, Value};
use super::read::{Fields, Reader};

/// What clients see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// Status of a limited request.
    pub status: u16,
    /// Content type of the body.
    pub content_type: String,
    /// Body of a limited request; `{rule}` and `{retry_after}` are replaced.
    pub body: String,
    /// Whether `x-ratelimit-limit`, `-remaining` and `-reset` are sent.
    pub x_ratelimit: bool,
    /// Whether `ratelimit-policy` and `ratelimit` are sent.
    pub ratelimit: bool,
    /// How `x-ratelimit-reset` is told.
    pub reset: Reset,
    /// What becomes of the same headers of the service behind.
    pub upstream_headers: UpstreamHeaders,
    /// Added to Retry-After at random, in whole seconds: at most this many thousandths of the wait.
    pub retry_after_jitter: u16,
}

/// What becomes of limit headers that the service behind has sent itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UpstreamHeaders {
    /// Those of this proxy stand in their place.
    Replace,
    /// They stay. A family of which the service has sent a header is the service's.
    Keep,
}

/// How a reset is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reset {
    /// As a moment: seconds since 1970.
    Epoch,
    /// As a wait in seconds.
    Seconds,
}

pub(super) fn read(reader: &mut Reader, fields: &Fields) -> Option<Response> {
    let fields = reader.object_of(fields, "response", &RESPONSE)?;
    let status = reader.integer(&fields, "status");
    let (content_type, body) = (reader.text_of(&fields, "content_type"), reader.text_of(&fields, "body"));
    let families = families(reader, &fields);
    let reset = reader.choice(&fields, "reset", RESETS);
    let upstream_headers = reader.choice(&fields, "upstream_headers", UPSTREAM);
    let retry_after_jitter = reader.part(&fields, "retry_after_jitter");
    let (status, (x_ratelimit, ratelimit)) = (u16::try_from(status?).ok()?, families?);
    let (reset, upstream_headers, retry_after_jitter) = (reset?, upstream_headers?, retry_after_jitter?);
    match (content_type, body) {
        (Some(content_type), Some(body)) => Some(Response {
            status,
            content_type,
            body,
            x_ratelimit,
            ratelimit,
            reset,
            upstream_headers,
            retry_after_jitter,
        }),
        _ => None,
    }
}

/// Whether `x-ratelimit`, and whether `ratelimit`, stands in the list of families to send.
fn families(reader: &mut Reader, fields: &Fields) -> Option<(bool, bool)> {
    let field = fields.object.field("headers")?;
    let Value::List(list) = field.value else {
        return None;
    };
    let mut listed = (false, false);
    let wanted = "write a list: [x-ratelimit], [x-ratelimit, ratelimit] or []";
    reader.each(fields, "headers", wanted, &mut |reader, path, item| {
        let family = reader.term(path, item, &list.of).and_then(|index| FAMILIES.get(index).copied());
        let (x_ratelimit, ratelimit) = family.unwrap_or_default();
        listed = (listed.0 || x_ratelimit, listed.1 || ratelimit);
    })?;
    Some(listed)
}
