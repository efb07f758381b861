//! `response`: what clients see.

use super::Response;
use super::language::{FAMILIES, RESETS, RESPONSE, UPSTREAM, Value};
use super::read::{Fields, Reader};

pub(super) fn read(reader: &mut Reader, fields: &Fields) -> Option<Response> {
    let fields = reader.object_of(fields, "response", &RESPONSE)?;
    let status = reader.integer(&fields, "status");
    let content_type = reader.text_of(&fields, "content_type");
    let body = reader.text_of(&fields, "body");
    let families = families(reader, &fields);
    let reset = reader.choice(&fields, "reset", RESETS);
    let upstream_headers = reader.choice(&fields, "upstream_headers", UPSTREAM);
    let retry_after_jitter = reader.part(&fields, "retry_after_jitter");
    let (x_ratelimit, ratelimit) = families?;
    Some(Response {
        status: u16::try_from(status?).ok()?,
        content_type: content_type?,
        body: body?,
        x_ratelimit,
        ratelimit,
        reset: reset?,
        upstream_headers: upstream_headers?,
        retry_after_jitter: retry_after_jitter?,
    })
}

/// Whether `x-ratelimit`, and whether `ratelimit`, stands in the list of families to send.
fn families(reader: &mut Reader, fields: &Fields) -> Option<(bool, bool)> {
    let field = fields.object.field("headers")?;
    let Value::List(of, ..) = field.value else {
        return None;
    };
    let mut listed = (false, false);
    let wanted = "write a list: [x-ratelimit], [x-ratelimit, ratelimit] or []";
    reader.each(fields, "headers", wanted, &mut |reader, path, item| {
        let family = reader.term(path, item, of).and_then(|index| FAMILIES.get(index).copied());
        let (x_ratelimit, ratelimit) = family.unwrap_or_default();
        listed = (listed.0 || x_ratelimit, listed.1 || ratelimit);
    })?;
    Some(listed)
}
